"""The workloads that wait in a ClusterQueue (pkg/cache/queue/cluster_queue.go, 0.16 to 0.19).

A workload that cannot be admitted is set aside until quota is released, with all others of its shape (priority and
requests). So does Kueue since 0.18 (SchedulingEquivalenceHashing); versions before it try each of them, with the same
result, but they try a workload that arrives later at once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from launcher.products.planner.scheduler.rules import Rules
from launcher.products.planner.scheduler.state import JobState

_Shape = tuple[object, ...]


def _order(workload: JobState) -> tuple[int, float, str]:
    return workload.order


class Pending:
    """The waiting workloads of one queue."""

    def __init__(self, *, strict: bool, rules: Rules) -> None:
        self._strict = strict
        self._rules = rules
        self._shapes: dict[_Shape, list[JobState]] = {}
        self._aside: set[_Shape] = set()
        self._preemptor: JobState | None = None

    def __iter__(self) -> Iterator[JobState]:
        for waiting in self._shapes.values():
            yield from waiting

    def add(self, workload: JobState) -> None:
        insort(self._shapes.setdefault(workload.shape, []), workload, key=_order)
        if not self._rules.by_shape:
            self._aside.discard(workload.shape)

    def remove(self, workload: JobState) -> None:
        """Remove a workload that is admitted."""
        waiting = self._shapes[workload.shape]
        del waiting[bisect_left(waiting, workload.order, key=_order)]
        if not waiting:
            del self._shapes[workload.shape]
        if self._preemptor is workload:
            self._preemptor = None

    def head(self) -> JobState | None:
        """Return the workload to try next. In a queue that is not strict, one that waits for preemptions is first."""
        first = self._preemptor
        if first is not None and not self._strict and first.shape not in self._aside:
            return first
        heads = (waiting[0] for shape, waiting in self._shapes.items() if shape not in self._aside)
        return min(heads, key=_order, default=None)

    def waits_for_preemption(self, workload: JobState) -> None:
        self._preemptor = workload

    def stops_waiting(self, workload: JobState) -> None:
        """Note that a workload does not wait for preemptions. Versions before this fix leave it first in its queue."""
        if self._preemptor is workload and self._rules.frees_the_head:
            self._preemptor = None

    def set_aside(self, workload: JobState) -> bool:
        """Set a workload aside, with all others of its shape. Returns False if the queue is strict: it stays first."""
        self.stops_waiting(workload)
        if not self._strict:
            self._aside.add(workload.shape)
        return not self._strict

    def try_again(self) -> None:
        """Take back what was set aside."""
        self._aside.clear()
