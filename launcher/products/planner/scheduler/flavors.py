"""The flavors that a workload gets: Kueue's flavor assigner (pkg/scheduler/flavorassigner/flavorassigner.go, 0.19)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum

from launcher.k8s.kueue.queues import FlavorResource
from launcher.k8s.kueue.quota import Fit, QuotaNode
from launcher.products.planner.scheduler.model import PodSetRequest
from launcher.products.planner.scheduler.rules import Rules
from launcher.products.planner.scheduler.state import NEVER, JobState, Policies, Usage

_ZERO = Decimal()


class Mode(IntEnum):
    """How a flavor can be assigned, from worst to best."""

    NO_FIT = 0
    NO_CANDIDATES = 1  # preemption could help, and there is no workload to preempt
    PREEMPT = 2  # after a preemption within the queue
    RECLAIM = 3  # after a preemption in other queues
    FIT = 4


Simulate = Callable[[JobState, FlavorResource, Decimal], tuple[Mode, int]]
"""Simulate a preemption: return the mode, and the height of the cohort that is borrowed from after it."""


@dataclass(slots=True)
class Assignment:
    """The flavors of each pod set, and what must happen before the workload can have them.

    `borrowing` is the height of the highest cohort that it borrows from, 0 for none. `preempting` are the flavors and
    resources that need a preemption. `more_to_try` is True if the search has stopped before the last flavor.
    """

    mode: Mode = Mode.FIT
    borrowing: int = 0
    flavors: list[dict[str, str]] = field(default_factory=list)
    usage: Usage = field(default_factory=dict)
    preempting: set[FlavorResource] = field(default_factory=set)
    tried: list[dict[str, int]] = field(default_factory=list)

    @property
    def needs_preemption(self) -> bool:
        return Mode.NO_FIT < self.mode < Mode.FIT

    @property
    def more_to_try(self) -> bool:
        return any(index != -1 for indexes in self.tried for index in indexes.values())


@dataclass(slots=True)
class _Choice:
    flavor: str
    mode: Mode
    borrowing: int
    modes: dict[str, tuple[Mode, int]]
    tried: int = -1


@dataclass(frozen=True, slots=True)
class FlavorAssigner:
    """Assigns flavors. `unavailable` are flavors without nodes."""

    fair_sharing: bool
    rules: Rules
    unavailable: Set[str]
    simulate: Simulate

    def assign(self, workload: JobState) -> Assignment:
        """Assign a flavor to each resource of each pod set."""
        made = Assignment()
        for index, pod_set in enumerate(workload.job.pod_sets):
            last = workload.last_tried[index] if index < len(workload.last_tried) else {}
            if not self._assign_pod_set(made, workload, pod_set, last):
                made.mode = Mode.NO_FIT
                return made
        return made

    def _assign_pod_set(
        self, made: Assignment, workload: JobState, pod_set: PodSetRequest, last: Mapping[str, int]
    ) -> bool:
        """Add the flavors of a pod set. Returns False if no flavor fits."""
        queue = workload.queue
        flavors: dict[str, str] = {}
        tried: dict[str, int] = {}
        for resource in sorted(pod_set.amounts):
            if resource in flavors:
                continue  # assigned with another resource of its group
            group = queue.flavors_of(resource)
            if group is None:
                if pod_set.amounts[resource]:
                    return False
                continue
            covered, candidates = group
            amounts = {name: amount for name, amount in pod_set.amounts.items() if name in covered}
            choice = self._search(workload, pod_set, amounts, candidates, last.get(resource, -1) + 1, made.usage)
            if choice is None:
                return False
            for name, (mode, borrowing) in choice.modes.items():
                flavors[name] = choice.flavor
                tried[name] = choice.tried
                made.borrowing = max(made.borrowing, borrowing)
                made.mode = min(made.mode, mode)
                if mode is not Mode.FIT:
                    made.preempting.add((choice.flavor, name))
        made.flavors.append(flavors)
        made.tried.append(tried)
        for name, flavor in flavors.items():
            what = (flavor, name)
            made.usage[what] = made.usage.get(what, _ZERO) + pod_set.amounts[name]
        return True

    def _search(
        self,
        workload: JobState,
        pod_set: PodSetRequest,
        amounts: Mapping[str, Decimal],
        candidates: tuple[str, ...],
        first: int,
        assumed: Mapping[FlavorResource, Decimal],
    ) -> _Choice | None:
        """Return the best flavor of a resource group.

        The search stops at the first that is good enough (fungibility).
        """
        policies = workload.queue.policies
        best: _Choice | None = None
        attempted = -1
        for attempted in range(first, len(candidates)):
            flavor = candidates[attempted]
            if flavor in self.unavailable or (pod_set.flavors is not None and flavor not in pod_set.flavors):
                continue
            choice = _Choice(flavor, Mode.FIT, 0, {})
            for name, amount in amounts.items():
                what = (flavor, name)
                mode, borrowing = self._fit(workload, what, amount + assumed.get(what, _ZERO))
                if self._better((choice.mode, choice.borrowing), (mode, borrowing), policies):
                    choice.mode, choice.borrowing = mode, borrowing
                if choice.mode is Mode.NO_FIT:
                    break
                choice.modes[name] = (mode, borrowing)
            if not _try_next(choice, policies):
                best = choice
                break
            if choice.mode is not Mode.NO_FIT and (
                best is None or self._better((choice.mode, choice.borrowing), (best.mode, best.borrowing), policies)
            ):
                best = choice
        if best is not None and attempted < len(candidates) - 1:
            best.tried = attempted
        return best

    def _fit(self, workload: JobState, what: FlavorResource, amount: Decimal) -> tuple[Mode, int]:
        """Return how the queue can give an amount, and the height of the cohort that it borrows from."""
        node, policies = workload.queue.node, workload.queue.policies
        fit = node.fit(what, amount)
        if fit is Fit.TOO_LARGE:
            return Mode.NO_FIT, 0
        if fit is Fit.NOW:
            return Mode.FIT, height_that_fits(node, what, amount)[0]
        while_borrowing = policies.borrow_and_preempt or (self.fair_sharing and policies.reclaim != NEVER)
        if while_borrowing or amount <= node.subtree_quota(what):
            return self.simulate(workload, what, amount)
        borrowing, may_reclaim = height_that_fits(node, what, amount)
        return self.simulate(workload, what, amount) if may_reclaim else (Mode.NO_FIT, borrowing)

    def _better(self, first: tuple[Mode, int], other: tuple[Mode, int], policies: Policies) -> bool:
        """Return whether one mode, with the height that it borrows from, is preferred to another."""
        (mode, borrowing), (other_mode, other_borrowing) = first, other
        if mode is Mode.NO_FIT or other_mode is Mode.NO_FIT:
            return mode is not Mode.NO_FIT
        if self.rules.no_candidates_last and (mode is Mode.NO_CANDIDATES) != (other_mode is Mode.NO_CANDIDATES):
            return mode is not Mode.NO_CANDIDATES
        if policies.prefers_preemption:
            return (-borrowing, mode) > (-other_borrowing, other_mode)
        return (mode, -borrowing) > (other_mode, -other_borrowing)


def height_that_fits(node: QuotaNode, what: FlavorResource, amount: Decimal) -> tuple[int, bool]:
    """Return the height of the lowest cohort whose free quota fits the amount, and if it is below the root.

    The height is 0 for the queue itself, and that of the root if no cohort fits (pkg/scheduler/preemption/classical).
    """
    if node.parent is None or not node.is_borrowing_with(what, amount):
        return 0, node.parent is not None
    rest = amount - node.local_available(what)
    for cohort in node.ancestors:
        if not cohort.is_borrowing_with(what, rest):
            return cohort.height, cohort.parent is not None
        rest -= cohort.local_available(what)
    return node.root.height, False


def _try_next(choice: _Choice, policies: Policies) -> bool:
    if choice.mode <= Mode.NO_CANDIDATES:
        return True
    if choice.mode in (Mode.PREEMPT, Mode.RECLAIM) and policies.next_flavor_if_preempting:
        return True
    return choice.borrowing > 0 and policies.next_flavor_if_borrowing
