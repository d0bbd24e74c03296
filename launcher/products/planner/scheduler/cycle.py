"""One cycle of Kueue's scheduler: it tries the head of each queue (pkg/scheduler/scheduler.go, 0.19)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal

from launcher.k8s.kueue.queues import FlavorResource
from launcher.k8s.kueue.quota import QuotaNode
from launcher.products.planner.scheduler import preemption
from launcher.products.planner.scheduler.fair_preemption import FairSharing
from launcher.products.planner.scheduler.flavors import Assignment, FlavorAssigner, Mode, height_that_fits
from launcher.products.planner.scheduler.pending import Pending
from launcher.products.planner.scheduler.preemption import Target
from launcher.products.planner.scheduler.rules import Rules
from launcher.products.planner.scheduler.shares import Share, Shares
from launcher.products.planner.scheduler.state import JobState, RootCohort, Usage

_ZERO = Decimal()


@dataclass(slots=True)
class Entry:
    """A head, with the flavors and the preemptions that it was nominated with."""

    workload: JobState
    assignment: Assignment
    targets: Sequence[Target]


@dataclass(slots=True)
class Scheduler:
    """The scheduler of one root cohort. `admit` and `evict` are called for each decision."""

    root_cohort: RootCohort
    pending: dict[str, Pending]
    sharing: FairSharing | None
    rules: Rules
    unavailable: Set[str]
    admit: Callable[[JobState, Assignment], None]
    evict: Callable[[Target, JobState], None]
    _assigner: FlavorAssigner = field(init=False)

    def __post_init__(self) -> None:
        self._assigner = FlavorAssigner(self.sharing is not None, self.rules, self.unavailable, self._simulate)

    def cycle(self) -> bool:
        """Try the head of each queue. Returns whether anything has changed."""
        entries = [
            self._nominate(head)
            for name, pending in self.pending.items()
            if self.root_cohort.queues[name].active and (head := pending.head()) is not None
        ]
        preempted: dict[str, JobState] = {}
        reserved: list[tuple[QuotaNode, Usage]] = []
        changed = False
        for entry in self._ordered(entries):
            changed |= self._process(entry, preempted, reserved)
        for node, usage in reserved:
            for what, amount in usage.items():
                node.remove_usage(what, amount)
        return changed

    # --- nomination ---

    def _nominate(self, workload: JobState) -> Entry:
        """Find flavors and preemptions for a head. The result holds until the state of the root cohort changes."""
        if workload.memo is not None and workload.memo[0] == self.root_cohort.version:
            entry = workload.memo[1]
            if isinstance(entry, Entry):
                return entry
        if not self.rules.keeps_progress and workload.tried_in != self.root_cohort.version:
            workload.last_tried = ()
        assignment = self._assigner.assign(workload)
        targets: Sequence[Target] = ()
        if assignment.needs_preemption:
            targets = self._targets(workload, frozenset(assignment.preempting), assignment.usage)
        entry = Entry(workload, assignment, targets)
        workload.memo = self.root_cohort.version, entry
        return entry

    def _targets(self, workload: JobState, kinds: frozenset[FlavorResource], requests: Usage) -> list[Target]:
        if self.sharing is not None:
            return self.sharing.targets(workload, kinds, requests)
        return preemption.targets(self.root_cohort, workload, kinds, requests)

    def _simulate(self, workload: JobState, what: FlavorResource, amount: Decimal) -> tuple[Mode, int]:
        """Simulate the preemption for one resource (pkg/scheduler/preemption/preemption_oracle.go)."""
        targets = self._targets(workload, frozenset({what}), {what: amount})
        node = workload.queue.node
        if not targets:
            return Mode.NO_CANDIDATES, height_that_fits(node, what, amount)[0]
        for target in targets:
            self.root_cohort.remove_usage(target.workload)
        borrowing = height_that_fits(node, what, amount)[0]
        preemption.restore(self.root_cohort, targets)
        own = any(target.workload.queue is workload.queue for target in targets)
        return Mode.PREEMPT if own else Mode.RECLAIM, borrowing

    # --- the order of the heads ---

    def _ordered(self, entries: list[Entry]) -> Iterator[Entry]:
        if self.sharing is None:
            yield from sorted(entries, key=lambda entry: (entry.assignment.borrowing, *entry.workload.order))
            return
        left = {id(entry.workload.queue.node): entry for entry in entries}
        while left:
            best = self._fairest(self.sharing.shares, left)
            del left[id(best.workload.queue.node)]
            yield best

    def _fairest(self, all_shares: Shares, left: dict[int, Entry]) -> Entry:
        """Return the winner of the tournament (pkg/scheduler/fair_sharing_iterator.go).

        At each cohort, the entry wins whose child of the cohort would have the lowest share with it.
        """
        shares: dict[tuple[int, int], Share] = {}
        for key, entry in left.items():
            node = entry.workload.queue.node
            for what, amount in entry.assignment.usage.items():
                node.add_usage(what, amount)
            below = node
            for cohort in node.ancestors:
                shares[id(cohort), key] = all_shares.share(below)
                below = cohort
            for what, amount in entry.assignment.usage.items():
                node.remove_usage(what, amount)
        won = self._tournament(self.root_cohort.root, left, shares)
        if won is None:
            raise AssertionError("unreachable")
        return won

    def _tournament(
        self, cohort: QuotaNode, left: dict[int, Entry], shares: dict[tuple[int, int], Share]
    ) -> Entry | None:
        if self.root_cohort.queue_of(cohort) is not None:
            return left.get(id(cohort))
        winners = [each for child in cohort.children if (each := self._tournament(child, left, shares)) is not None]

        def order(entry: Entry) -> tuple[object, ...]:
            share = shares[id(cohort), id(entry.workload.queue.node)]
            borrows = self.rules.nominal_first and any(
                amount > 0 and what in share.borrowed for what, amount in entry.assignment.usage.items()
            )
            return borrows, share.order, entry.workload.order

        return min(winners, key=order, default=None)

    # --- decisions ---

    def _process(self, entry: Entry, preempted: dict[str, JobState], reserved: list[tuple[QuotaNode, Usage]]) -> bool:
        """Admit a workload, preempt others for it, or set it aside. Returns whether anything has changed."""
        workload, assignment = entry.workload, entry.assignment
        pending, node = self.pending[workload.queue.name], workload.queue.node
        if assignment.mode is Mode.NO_FIT:
            return self._try_later(pending, entry)
        if assignment.needs_preemption and not entry.targets:
            if not workload.queue.can_always_reclaim:
                self._reserve(node, self._within_limits(entry), reserved)
            return self._try_later(pending, entry)
        if any(target.workload.name in preempted for target in entry.targets):
            return self._skip(pending, entry)
        going = {**preempted, **{target.workload.name: target.workload for target in entry.targets}}
        for leaving in going.values():
            self.root_cohort.remove_usage(leaving)
        enough = preemption.fits(workload, assignment.usage, borrowing=True)
        for leaving in going.values():
            self.root_cohort.add_usage(leaving)
        if not enough:
            return self._skip(pending, entry)
        preempted |= {target.workload.name: target.workload for target in entry.targets}
        starts_again = bool(workload.last_tried)  # the next attempt tries all flavors
        if starts_again:
            workload.try_next((), self.root_cohort.version)
        if not assignment.needs_preemption:
            pending.remove(workload)
            self.admit(workload, assignment)
            return True
        self._reserve(node, assignment.usage, reserved)
        pending.waits_for_preemption(workload)
        new = [target for target in entry.targets if not target.workload.evicted]
        for target in new:
            self.evict(target, workload)
        return bool(new) or starts_again

    def _try_later(self, pending: Pending, entry: Entry) -> bool:
        workload = entry.workload
        if entry.assignment.more_to_try:  # it stays active, and tries its other flavors in the next cycle
            pending.stops_waiting(workload)
            workload.try_next(entry.assignment.tried, self.root_cohort.version)
            return True
        if workload.last_tried:
            workload.try_next((), self.root_cohort.version)
        return pending.set_aside(workload)

    def _skip(self, pending: Pending, entry: Entry) -> bool:
        """Leave a workload at the head: another head took what it was nominated for. It tries its next flavor."""
        workload = entry.workload
        more = self.rules.keeps_progress and entry.assignment.more_to_try
        tried = tuple(entry.assignment.tried) if more else ()
        pending.stops_waiting(workload)
        if workload.last_tried != tried:
            workload.try_next(tried, self.root_cohort.version)
            return True
        return False

    def _within_limits(self, entry: Entry) -> Usage:
        """Return what a workload that waits for quota keeps from others until the end of the cycle."""
        node = entry.workload.queue.node
        kept = {}
        for what, amount in entry.assignment.usage.items():
            quota = node.quotas.get(what)
            left = node.subtree_quota(what) - node.used(what)
            if entry.assignment.borrowing > 0:
                if quota is not None and quota.borrowing_limit is not None:
                    amount = min(amount, left + quota.borrowing_limit)
            else:
                amount = min(amount, left)
            kept[what] = max(_ZERO, amount)
        return kept

    def _reserve(self, node: QuotaNode, usage: Usage, reserved: list[tuple[QuotaNode, Usage]]) -> None:
        for what, amount in usage.items():
            node.add_usage(what, amount)
        reserved.append((node, usage))
