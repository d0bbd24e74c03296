"""Check the queues of the namespace: whether they exist and accept runs. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from launcher.diagnose.doctor import components
from launcher.diagnose.doctor.finding import QUEUES, Finding, Level, join_words

if TYPE_CHECKING:
    from launcher.diagnose.doctor.inventory import ClusterInventory
    from launcher.k8s.kueue.queues import ClusterQueue, LocalQueue

INSTALL = "launcher install queues creates it from values like values/queues/three-teams.yaml."


def examine(sight: ClusterInventory) -> Iterator[Finding]:
    """Return findings on LocalQueues and priorities."""
    if not sight.serves(components.KUEUE.group):
        return
    yield from _local_queues(sight)
    if sight.priorities.forbidden:
        yield finding(Level.UNKNOWN, "priorities", f"{sight.priorities.says}.")
    elif sight.priorities.seen is not None:
        ranked = sorted(sight.priorities.seen, key=lambda priority: priority.value)
        if ranked:
            words = join_words((f"{priority.name} ({priority.value})" for priority in ranked), most=8)
            yield finding(Level.OK, "priorities", f"{words}.")
        else:
            says = "there is no WorkloadPriorityClass, so runs cannot set queue.priority."
            yield finding(Level.WARNING, "priorities", says, INSTALL)


def _local_queues(sight: ClusterInventory) -> Iterator[Finding]:
    if sight.local_queues.forbidden:
        yield finding(Level.UNKNOWN, "LocalQueues", f"{sight.local_queues.says}.")
        return
    if sight.local_queues.seen is None:
        return
    if not sight.local_queues.seen:
        yield finding(
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
        return finding(
            Level.PROBLEM,
            subject,
            f"its ClusterQueue {called} does not exist, so its runs wait indefinitely.",
            INSTALL,
        )
    if target and (refused := _not_for_us(sight, target)):
        return finding(
            Level.PROBLEM, subject, f"its ClusterQueue {called} accepts no runs of this namespace: {refused}"
        )
    if active.is_false:
        says = (active.message or active.reason).rstrip(".")
        stopped = local.stopped or (target is not None and target.stopped)
        level = Level.WARNING if stopped else Level.PROBLEM
        return finding(level, subject, f"its ClusterQueue is {called}; it admits no runs: {says}.")
    among = f", in the cohort {target.cohort}" if target and target.cohort else ""
    return finding(Level.OK, subject, f"its ClusterQueue is {called}{among}.")


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


def finding(level: Level, subject: str, says: str, hint: str = "") -> Finding:
    """Return a finding on queues."""
    return Finding(QUEUES, level, subject, says, hint)
