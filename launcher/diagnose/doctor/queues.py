"""Check the queues: whether they accept runs, whether their quota covers a run's head, and which the namespace has.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from launcher.config.accelerators import CHIPS
from launcher.diagnose.doctor import components
from launcher.diagnose.doctor.finding import QUEUES, Finding, Level, join_words
from launcher.k8s.kueue.quota import Quotas
from launcher.k8s.objects import quantity

if TYPE_CHECKING:
    from launcher.diagnose.doctor.inventory import ClusterInventory
    from launcher.k8s.kueue.queues import ClusterQueue, LocalQueue

_INSTALL = "launcher install queues creates it from values like values/queues/three-teams.yaml."


def examine(sight: ClusterInventory, head: Mapping[str, Any]) -> Iterator[Finding]:
    """Return findings on ClusterQueues, LocalQueues and priorities.

    `head` is the cpu and memory of a Ray head in the chart's defaults.
    """
    if not sight.serves(components.KUEUE.group):
        return
    yield from _cluster_queues(sight, head)
    yield from _local_queues(sight)
    if sight.priorities.forbidden:
        yield _finding(Level.UNKNOWN, "priorities", f"{sight.priorities.says}.")
    elif sight.priorities.seen is not None:
        ranked = sorted(sight.priorities.seen, key=lambda one: one.value)
        if ranked:
            words = join_words((f"{one.name} ({one.value})" for one in ranked), most=8)
            yield _finding(Level.OK, "priorities", f"{words}.")
        else:
            says = "there is no WorkloadPriorityClass, so runs cannot set queue.priority."
            yield _finding(Level.WARNING, "priorities", says, _INSTALL)


def _cluster_queues(sight: ClusterInventory, head: Mapping[str, Any]) -> Iterator[Finding]:
    if sight.cluster_queues.forbidden:
        yield _finding(Level.UNKNOWN, "ClusterQueues", f"{sight.cluster_queues.says}.")
        return
    queues = sight.cluster_queues.seen
    if queues is None:
        return
    if not queues:
        yield _finding(Level.PROBLEM, "ClusterQueues", "there is none, so no run is admitted.", _INSTALL)
        return
    quotas = Quotas(queues, sight.cohorts.seen or [])
    fine, new = [], [queue.name for queue in queues if not queue.condition("Active")]
    if new:
        says = f"Kueue has not processed {join_words(new)}: its controller is not running, or they are new."
        yield _finding(Level.WARNING, "ClusterQueues", says)
    for queue in queues:
        bad = [*_active(queue), *_head(sight, queue, quotas, head)]
        fine += [] if bad or queue.name in new else [queue.name]
        yield from bad
    if fine:
        yield _finding(Level.OK, "ClusterQueues", f"{join_words(fine)}: active.")


def _active(queue: ClusterQueue) -> Iterator[Finding]:
    subject = f"ClusterQueue {queue.name}"
    active = queue.condition("Active")
    if active and not active.is_true:
        stopped = active.reason == "Stopped"
        says = (active.message or active.reason).rstrip(".")
        yield _finding(
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
        yield _finding(
            Level.PROBLEM,
            subject,
            f"has quota for chips but not for {join_words(missing)}: the head of a Ray run requests {_as_text(head)}, "
            "so Ray runs wait indefinitely.",
            "Add a cpu flavor to its quota (clusterQueues.NAME.quota in charts/queues).",
        )
        return
    short = {}
    for resource, asked in head.items():
        if max(quotas.capacity(queue.name, (one, resource)) for one in flavors[resource]) < quantity(asked):
            short[resource] = asked
    if short:
        yield _finding(
            Level.PROBLEM,
            subject,
            f"its quota, including what it may borrow, is less than the {_as_text(short)} that the head of a Ray run "
            "requests by default.",
            "Increase it; KubeRay adds 500m and 200Mi for the submitter, and the same amount for an autoscaler.",
        )


def _local_queues(sight: ClusterInventory) -> Iterator[Finding]:
    if sight.local_queues.forbidden:
        yield _finding(Level.UNKNOWN, "LocalQueues", f"{sight.local_queues.says}.")
        return
    if sight.local_queues.seen is None:
        return
    if not sight.local_queues.seen:
        yield _finding(
            Level.WARNING,
            "LocalQueues",
            f"the namespace {sight.namespace} has none, so runs here have no queue to wait in.",
            "Choose a team's namespace with -n; charts/queues creates a LocalQueue for each team.",
        )
    queues = {queue.name: queue for queue in sight.cluster_queues.seen or []}
    for local in sight.local_queues.seen:
        yield _local_queue(sight, local, queues)


def _local_queue(sight: ClusterInventory, local: LocalQueue, queues: Mapping[str, ClusterQueue]) -> Finding:
    subject, called = f"LocalQueue {local.name}", local.cluster_queue
    target, active = queues.get(called), local.condition("Active")
    if sight.cluster_queues.seen is not None and target is None:
        return _finding(
            Level.PROBLEM,
            subject,
            f"its ClusterQueue {called} does not exist, so its runs wait indefinitely.",
            _INSTALL,
        )
    if target and (refused := _not_for_us(sight, target)):
        return _finding(
            Level.PROBLEM, subject, f"its ClusterQueue {called} accepts no runs of this namespace: {refused}"
        )
    if active.is_false:
        says = (active.message or active.reason).rstrip(".")
        stopped = local.stopped or (target is not None and target.stopped)
        level = Level.WARNING if stopped else Level.PROBLEM
        return _finding(level, subject, f"its ClusterQueue is {called}; it admits no runs: {says}.")
    among = f", in the cohort {target.cohort}" if target and target.cohort else ""
    return _finding(Level.OK, subject, f"its ClusterQueue is {called}{among}.")


def _not_for_us(sight: ClusterInventory, queue: ClusterQueue) -> str:
    """Return why a ClusterQueue's namespaceSelector excludes this namespace; "" if it does not, or if unknown."""
    selector = queue.namespace_selector
    if selector is None:
        return "it has no namespaceSelector, which matches no namespace."
    if sight.own_namespace.seen is None:
        return ""
    labels = sight.own_namespace.seen["metadata"].get("labels") or {}
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return f"its namespaceSelector requires the label {key}={value}."
    return ""


def _as_text(amounts: Mapping[str, Any]) -> str:
    units = {"cpu": "{} cores", "memory": "{} of memory"}
    return join_words(units.get(resource, "{}").format(amount) for resource, amount in amounts.items())


def _finding(level: Level, subject: str, says: str, hint: str = "") -> Finding:
    return Finding(QUEUES, level, subject, says, hint)
