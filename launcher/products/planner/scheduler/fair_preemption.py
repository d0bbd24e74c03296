"""The workloads that are preempted for another, with fair sharing (pkg/scheduler/preemption/fairsharing, 0.19)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from launcher.k8s.kueue.queues import FlavorResource
from launcher.k8s.kueue.quota import QuotaNode
from launcher.products.planner.scheduler.model import PreemptionStrategy
from launcher.products.planner.scheduler.preemption import (
    FAIR_SHARING,
    IN_QUEUE,
    RECLAMATION,
    Target,
    fits,
    may_preempt,
    preemption_order,
    put_back,
    restore,
    within_quota,
)
from launcher.products.planner.scheduler.shares import Share, Shares
from launcher.products.planner.scheduler.state import NEVER, JobState, QueueState, RootCohort, Usage

_STRATEGIES: dict[PreemptionStrategy, Callable[[Share, Share, Share], bool]] = {
    # Rules S2-a and S2-b of Kueue's KEP 1714: the share of the preemptor with the new workload, the share of the other
    # queue before, and after the preemption.
    "LessThanOrEqualToFinalShare": lambda preemptor, _, after: preemptor.order <= after.order,
    "LessThanInitialShare": lambda preemptor, before, _: preemptor.order < before.order,
}


@dataclass(slots=True)
class FairSharing:
    """Preemption with fair sharing in one root cohort. `within_nominal` is Kueue's rule since 0.17."""

    root_cohort: RootCohort
    shares: Shares
    strategies: Sequence[PreemptionStrategy]
    within_nominal: bool

    def targets(self, workload: JobState, kinds: frozenset[FlavorResource], requests: Usage) -> list[Target]:
        """Return the workloads to preempt so that the requests fit; [] if preemption does not help."""
        candidates = self._candidates(workload, kinds)
        if not candidates:
            return []
        removed: list[Target] = []
        self._count(workload, requests)  # shares include the new workload
        done, retry = self._first(workload, kinds, requests, candidates, removed)
        if not done and len(self.strategies) > 1:
            done = self._second(workload, requests, retry, removed)
        self._uncount(workload, requests)
        if not done:
            restore(self.root_cohort, removed)
            return []
        removed = put_back(self.root_cohort, workload, requests, removed, borrowing=True)
        restore(self.root_cohort, removed)
        return removed

    def _candidates(self, workload: JobState, kinds: frozenset[FlavorResource]) -> list[JobState]:
        policies, own = workload.queue.policies, workload.queue
        candidates: list[JobState] = []
        if policies.within != NEVER:
            candidates += [
                candidate
                for candidate in own.running.values()
                if candidate.holds(kinds) and may_preempt(policies.within, workload, candidate)
            ]
        if own.node.parent is not None and policies.reclaim != NEVER:
            for queue in self.root_cohort.queues.values():
                if queue is not own and not within_quota(queue.node, kinds):
                    candidates += [
                        candidate
                        for candidate in queue.running.values()
                        if candidate.holds(kinds) and may_preempt(policies.reclaim, workload, candidate)
                    ]
        return sorted(candidates, key=lambda candidate: preemption_order(candidate, workload))

    def _first(
        self,
        workload: JobState,
        kinds: frozenset[FlavorResource],
        requests: Usage,
        candidates: list[JobState],
        removed: list[Target],
    ) -> tuple[bool, list[JobState]]:
        """Preempt by the first strategy. Returns whether the requests fit, and the candidates that it does not take."""
        strategy = _STRATEGIES[self.strategies[0]]
        entitled = self.within_nominal and within_quota(workload.queue.node, kinds)
        retry: list[JobState] = []
        order = _QueueOrder(self, workload, candidates)
        for queue in order.queues():
            if queue is workload.queue or entitled:
                reason = IN_QUEUE if queue is workload.queue else RECLAMATION
                if self._remove(workload, requests, Target(order.pop(queue), reason), removed):
                    return True, []
                continue
            own, other = _below_common(workload.queue.node, queue.node)
            preemptor, before = self.shares.share(own), self.shares.share(other)
            while order.left(queue):
                candidate = order.pop(queue)
                self.root_cohort.remove_usage(candidate)
                after = self.shares.share(other)
                self.root_cohort.add_usage(candidate)
                if not strategy(preemptor, before, after):
                    retry.append(candidate)
                    continue
                if self._remove(workload, requests, Target(candidate, FAIR_SHARING), removed):
                    return True, []
                break  # another queue may have the highest share now
        return False, retry

    def _second(self, workload: JobState, requests: Usage, retry: list[JobState], removed: list[Target]) -> bool:
        """Preempt at most one workload of each queue by the second strategy, which must be LessThanInitialShare."""
        order = _QueueOrder(self, workload, retry)
        for queue in order.queues():
            own, other = _below_common(workload.queue.node, queue.node)
            candidate = order.pop(queue)
            share = self.shares.share(other)
            if _STRATEGIES["LessThanInitialShare"](self.shares.share(own), share, share) and self._remove(
                workload, requests, Target(candidate, FAIR_SHARING), removed
            ):
                return True
            order.drop(queue)
        return False

    def _remove(self, workload: JobState, requests: Usage, target: Target, removed: list[Target]) -> bool:
        """Remove a workload, and return whether the requests fit now."""
        self.root_cohort.remove_usage(target.workload)
        removed.append(target)
        self._uncount(workload, requests)
        enough = fits(workload, requests, borrowing=True)
        self._count(workload, requests)
        return enough

    def _count(self, workload: JobState, requests: Usage) -> None:
        for what, amount in requests.items():
            workload.queue.node.add_usage(what, amount)

    def _uncount(self, workload: JobState, requests: Usage) -> None:
        for what, amount in requests.items():
            workload.queue.node.remove_usage(what, amount)


@dataclass(slots=True)
class _QueueOrder:
    """The queues to take candidates from: at each cohort, the child with the highest share."""

    sharing: FairSharing
    preemptor: JobState
    candidates: list[JobState]
    _left: dict[str, list[JobState]] = field(default_factory=dict)
    _pruned: set[int] = field(default_factory=set)
    _own: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for candidate in self.candidates:
            self._left.setdefault(candidate.queue.name, []).append(candidate)
        self._own = {id(cohort) for cohort in self.preemptor.queue.node.ancestors}

    def queues(self) -> Iterator[QueueState]:
        """Yield the next queue until none is left. Each time, take a candidate from it or drop it."""
        node = self.preemptor.queue.node
        if node.parent is None:
            while self.left(self.preemptor.queue):
                yield self.preemptor.queue
            return
        root = node.root
        while id(root) not in self._pruned:
            queue = self._next(root)
            if queue is not None:
                yield queue

    def left(self, queue: QueueState) -> bool:
        return bool(self._left.get(queue.name))

    def pop(self, queue: QueueState) -> JobState:
        return self._left[queue.name].pop(0)

    def drop(self, queue: QueueState) -> None:
        self._pruned.add(id(queue.node))

    def _next(self, cohort: QuotaNode) -> QueueState | None:
        best_queue: tuple[Share, QueueState] | None = None
        best_cohort: tuple[Share, QuotaNode] | None = None
        for child in cohort.children:
            if id(child) in self._pruned:
                continue
            share = self.sharing.shares.share(child)
            queue = self.sharing.root_cohort.queue_of(child)
            if queue is None:
                if share.ratio == 0 and id(child) not in self._own:
                    self._pruned.add(id(child))
                elif best_cohort is None or share.order >= best_cohort[0].order:
                    best_cohort = share, child
            elif (share.ratio == 0 and queue is not self.preemptor.queue) or not self.left(queue):
                self._pruned.add(id(child))
            elif best_queue is None or self._before(share, queue, best_queue):
                best_queue = share, queue
        if best_cohort is not None and (best_queue is None or best_cohort[0].order >= best_queue[0].order):
            return self._next(best_cohort[1])
        if best_queue is None:
            self._pruned.add(id(cohort))
            return None
        return best_queue[1]

    def _before(self, share: Share, queue: QueueState, best: tuple[Share, QueueState]) -> bool:
        if share.order != best[0].order:
            return share.order > best[0].order
        mine, other = self._left[queue.name][0], self._left[best[1].name][0]
        return preemption_order(mine, self.preemptor) < preemption_order(other, self.preemptor)


def _below_common(own: QuotaNode, other: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """Return the two nodes just below the lowest cohort of both queues."""
    mine = [own, *own.ancestors]
    above = {id(node): index for index, node in enumerate(mine)}
    below = other
    for cohort in other.ancestors:
        if id(cohort) in above:
            return mine[above[id(cohort)] - 1], below
        below = cohort
    raise AssertionError("unreachable")
