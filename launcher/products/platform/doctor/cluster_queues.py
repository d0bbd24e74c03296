"""Check the ClusterQueues: whether they accept runs, and whether their quota covers a run's head. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from launcher.config.accelerators import CHIPS
from launcher.diagnose.doctor import components
from launcher.diagnose.doctor.finding import Finding, Level, join_words
from launcher.diagnose.doctor.queues import INSTALL, finding
from launcher.k8s.kueue.quota import Quotas
from launcher.k8s.objects import quantity

if TYPE_CHECKING:
    from launcher.diagnose.doctor.inventory import ClusterInventory
    from launcher.k8s.kueue.queues import ClusterQueue


def examine(sight: ClusterInventory, head: Mapping[str, Any]) -> Iterator[Finding]:
    """Return findings on ClusterQueues. `head` is the cpu and memory of a Ray head in the chart's defaults."""
    if not sight.serves(components.KUEUE.group):
        return
    if sight.cluster_queues.forbidden:
        yield finding(Level.UNKNOWN, "ClusterQueues", f"{sight.cluster_queues.says}.")
        return
    queues = sight.cluster_queues.seen
    if queues is None:
        return
    if not queues:
        yield finding(Level.PROBLEM, "ClusterQueues", "there is none, so no run is admitted.", INSTALL)
        return
    quotas = Quotas(queues, sight.cohorts.seen or [])
    fine, new = [], [queue.name for queue in queues if not queue.condition("Active")]
    if new:
        says = f"Kueue has not processed {join_words(new)}: its controller is not running, or they are new."
        yield finding(Level.WARNING, "ClusterQueues", says)
    for queue in queues:
        bad = [*_active(queue), *_head(sight, queue, quotas, head)]
        fine += [] if bad or queue.name in new else [queue.name]
        yield from bad
    if fine:
        yield finding(Level.OK, "ClusterQueues", f"{join_words(fine)}: active.")


def _active(queue: ClusterQueue) -> Iterator[Finding]:
    subject = f"ClusterQueue {queue.name}"
    active = queue.condition("Active")
    if active and not active.is_true:
        stopped = active.reason == "Stopped"
        says = (active.message or active.reason).rstrip(".")
        yield finding(
            Level.WARNING if stopped else Level.PROBLEM,
            subject,
            f"admits no runs: {says}.",
            "Its stopPolicy stops it (clusterQueues.NAME.stopPolicy in charts/queues)." if stopped else "",
        )


def _head(sight: ClusterInventory, queue: ClusterQueue, quotas: Quotas, head: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that the quota covers the cpu and memory of a Ray run's head, which has no chips.

    Otherwise the queue never admits the run.
    """
    has = quotas.resources(queue.name)
    if not sight.serves(components.KUBERAY.group) or not any(resource in has for resource in CHIPS):
        return
    subject = f"ClusterQueue {queue.name}"
    # Heads tolerate no taints, so they cannot use a flavor with a taint (charts/queues, hostCpu).
    tainted = {flavor.name for flavor in sight.flavors.seen or [] if flavor.node_taints}
    flavors = {
        resource: [one for one in quotas.flavors(queue.name, resource) if one not in tainted] for resource in head
    }
    missing = [resource for resource in head if not flavors[resource]]
    if missing:
        yield finding(
            Level.PROBLEM,
            subject,
            f"has quota for chips but not for {join_words(missing)}: the head of a Ray run requests {_as_text(head)}, "
            "so Ray runs wait indefinitely.",
            "Add a cpu flavor to its quota (clusterQueues.NAME.quota in charts/queues).",
        )
        return
    short = {}
    for resource, asked in head.items():
        if max(quotas.potential_available(queue.name, (one, resource)) for one in flavors[resource]) < quantity(asked):
            short[resource] = asked
    if short:
        yield finding(
            Level.PROBLEM,
            subject,
            f"its quota, including what it may borrow, is less than the {_as_text(short)} that the head of a Ray run "
            "requests by default.",
            "Increase it; KubeRay adds 500m and 200Mi for the submitter, and the same amount for an autoscaler.",
        )


def _as_text(amounts: Mapping[str, Any]) -> str:
    units = {"cpu": "{} cores", "memory": "{} of memory"}
    return join_words(units.get(resource, "{}").format(amount) for resource, amount in amounts.items())
