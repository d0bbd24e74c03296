"""The workloads that are preempted for another, without fair sharing (pkg/scheduler/preemption, 0.19)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from launcher.k8s.kueue.queues import FlavorResource
from launcher.k8s.kueue.quota import QuotaNode
from launcher.products.planner.scheduler.state import (
    ANY,
    LOWER_OR_NEWER,
    LOWER_PRIORITY,
    NEVER,
    JobState,
    QueueState,
    RootCohort,
    Usage,
)

IN_QUEUE = "InClusterQueue"
RECLAMATION = "InCohortReclamation"
RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
FAIR_SHARING = "InCohortFairSharing"
_ZERO = Decimal()


@dataclass(frozen=True, slots=True)
class Target:
    """A workload that is to be preempted, with Kueue's reason."""

    workload: JobState
    reason: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    """`meets` is the lowest cohort of both queues, None in the same queue.

    `borrowing` is False if it can only be preempted for a workload that does not borrow.
    """

    workload: JobState
    reason: str
    meets: QuotaNode | None = None
    borrowing: bool = True


def may_preempt(policy: str, workload: JobState, candidate: JobState) -> bool:
    """Return whether a policy of preemption allows a workload to preempt another."""
    if policy == ANY:
        return True
    if workload.priority > candidate.priority:
        return policy in (LOWER_PRIORITY, LOWER_OR_NEWER)
    return policy == LOWER_OR_NEWER and workload.priority == candidate.priority and workload.created < candidate.created


def preemption_order(workload: JobState, preemptor: JobState) -> tuple[bool, bool, int, float, str]:
    """Return the order of candidates: being evicted, of other queues, of low priority, admitted late."""
    return (
        not workload.evicted,
        workload.queue is preemptor.queue,
        workload.priority,
        -workload.reserved,
        workload.name,
    )


def fits(workload: JobState, requests: Mapping[FlavorResource, Decimal], *, borrowing: bool) -> bool:
    """Return whether the quota that is free now is enough."""
    node = workload.queue.node
    for what, amount in requests.items():
        if not borrowing and node.is_borrowing_with(what, amount):
            return False
        if amount > max(_ZERO, node.available(what)):
            return False
    return True


def targets(root: RootCohort, workload: JobState, kinds: frozenset[FlavorResource], requests: Usage) -> list[Target]:
    """Return the workloads to preempt so that the requests fit; [] if preemption does not help.

    Candidates are removed in their order until the requests fit; then those that need not go are put back.
    """
    if not _can_help(root, workload, requests):
        return []
    queue = workload.queue
    same = _in_queue(workload, kinds)
    above, others = _in_cohort(root, workload, kinds, requests)
    ordered = []
    for evicted in (True, False):
        for group in (above, others, same):
            ordered += [each for each in group if each.workload.evicted is evicted]
    under_nominal = all(queue.node.used(what) < queue.node.subtree_quota(what) for what in kinds)
    forbidden = not queue.policies.borrow_and_preempt
    attempts: tuple[bool, ...]
    if not (above or others) or (forbidden and not under_nominal):
        attempts = (True,)
    elif forbidden and not above:
        attempts = (False, True)
    else:
        attempts = (True, False)
    for borrowing in attempts:
        removed: list[Target] = []
        for candidate in _valid(ordered, workload, kinds, borrowing):
            root.remove_usage(candidate.workload)
            removed.append(Target(candidate.workload, candidate.reason))
            if fits(workload, requests, borrowing=borrowing):
                removed = put_back(root, workload, requests, removed, borrowing=borrowing)
                restore(root, removed)
                return removed
        restore(root, removed)
    return []


def _can_help(root: RootCohort, workload: JobState, requests: Usage) -> bool:
    """Return False if no preemption can help: a quick upper bound of what `targets` does. It only saves time."""
    queue, policies = workload.queue, workload.queue.policies
    node = queue.node
    # A queue that would borrow must not take from others, unless its policy allows it or a cohort above has quota.
    flat = node.parent is None or node.parent.parent is None
    while_borrowing, without_borrowing = True, True
    for what, amount in requests.items():
        exceeding = node.used(what) + amount - node.subtree_quota(what)
        missing = amount - max(_ZERO, node.available(what))
        if missing <= 0 and exceeding <= 0:
            continue
        own = queue.preemptible(what, policies.within, workload.priority)
        without_borrowing = without_borrowing and own >= exceeding
        if own >= missing:
            continue
        if flat and exceeding > 0 and not policies.borrow_and_preempt:
            while_borrowing = False
            if not without_borrowing:
                return False
        others = missing - own
        if policies.reclaim != NEVER:
            for other in root.queues.values():
                if other is not queue and other.node.is_borrowing_with(what):
                    others -= other.reclaimable(what, policies.reclaim, workload.priority)
                    if others <= 0:
                        break
        if others > 0:
            return False
    return while_borrowing or without_borrowing


def put_back(
    root_cohort: RootCohort, workload: JobState, requests: Usage, removed: list[Target], *, borrowing: bool
) -> list[Target]:
    """Put back the workloads that need not go, the last removed first, and return the others in Kueue's order."""
    left = list(removed)
    for index in range(len(left) - 2, -1, -1):
        root_cohort.add_usage(left[index].workload)
        if fits(workload, requests, borrowing=borrowing):
            left[index] = left[-1]
            left.pop()
        else:
            root_cohort.remove_usage(left[index].workload)
    return left


def restore(root_cohort: RootCohort, removed: list[Target]) -> None:
    for target in removed:
        root_cohort.add_usage(target.workload)


def within_quota(node: QuotaNode, kinds: frozenset[FlavorResource]) -> bool:
    return not any(node.is_borrowing_with(what) for what in kinds)


def _valid(
    ordered: list[_Candidate], workload: JobState, kinds: frozenset[FlavorResource], borrowing: bool
) -> Iterator[_Candidate]:
    """Yield the candidates that may go now: the candidates before them can make them invalid."""
    for candidate in ordered:
        if candidate.meets is not None:
            if borrowing and not candidate.borrowing:
                continue
            node = candidate.workload.queue.node
            if within_quota(node, kinds):
                continue
            if any(within_quota(cohort, kinds) for cohort in _up_to(node, candidate.meets)):
                continue
        yield candidate


def _up_to(node: QuotaNode, end: QuotaNode) -> Iterator[QuotaNode]:
    for cohort in node.ancestors:
        if cohort is end:
            return
        yield cohort


def _in_queue(workload: JobState, kinds: frozenset[FlavorResource]) -> list[_Candidate]:
    policy = workload.queue.policies.within
    if policy == NEVER:
        return []
    candidates = [
        _Candidate(each, IN_QUEUE)
        for each in workload.queue.running.values()
        if each.holds(kinds) and may_preempt(policy, workload, each)
    ]
    return sorted(candidates, key=lambda candidate: preemption_order(candidate.workload, workload))


def _in_cohort(
    root_cohort: RootCohort, workload: JobState, kinds: frozenset[FlavorResource], requests: Usage
) -> tuple[list[_Candidate], list[_Candidate]]:
    """Return the candidates of other queues: those whose quota is nearer to this queue, and the others.

    The first lose quota that belongs to a cohort of this queue and not to one of theirs, at any priority.
    """
    node, policies = workload.queue.node, workload.queue.policies
    above: list[_Candidate] = []
    others: list[_Candidate] = []
    if node.parent is None or policies.reclaim == NEVER:
        return above, others
    nearer, rest = _fits_in_quota(node, requests)
    before: QuotaNode | None = None
    for cohort in node.ancestors:
        candidates = above if nearer else others
        for queue in _exceeding(root_cohort, cohort, before, node, kinds):
            for running in queue.running.values():
                if not running.holds(kinds) or not may_preempt(policies.reclaim, workload, running):
                    continue
                candidates.append(_candidate(workload, running, cohort, nearer=nearer))
        fit, rest = _fits_in_quota(cohort, rest)
        nearer = nearer or fit
        before = cohort
    for group in (above, others):
        group.sort(key=lambda candidate: preemption_order(candidate.workload, workload))
    return above, others


def _candidate(workload: JobState, candidate: JobState, cohort: QuotaNode, *, nearer: bool) -> _Candidate:
    policies = workload.queue.policies
    if nearer:
        return _Candidate(candidate, RECLAMATION, cohort)
    threshold = policies.borrow_threshold
    too_high = candidate.priority >= workload.priority or (threshold is not None and candidate.priority > threshold)
    if not policies.borrow_and_preempt or too_high:
        return _Candidate(candidate, RECLAMATION, cohort, borrowing=False)
    return _Candidate(candidate, RECLAIM_WHILE_BORROWING, cohort)


def _exceeding(
    root_cohort: RootCohort, cohort: QuotaNode, skip: QuotaNode | None, own: QuotaNode, kinds: frozenset[FlavorResource]
) -> Iterator[QueueState]:
    """Yield the queues below a cohort that exceed their quota, as do all cohorts between."""
    for child in cohort.children:
        if child is skip or child is own or within_quota(child, kinds):
            continue
        queue = root_cohort.queue_of(child)
        if queue is not None:
            yield queue
        else:
            yield from _exceeding(root_cohort, child, skip, own, kinds)


def _fits_in_quota(node: QuotaNode, requests: Mapping[FlavorResource, Decimal]) -> tuple[bool, Usage]:
    """Return whether requests fit in the quota of a node, and what of them is left for its parent."""
    fit = not any(node.is_borrowing_with(what, amount) for what, amount in requests.items())
    return fit, {what: max(_ZERO, amount - node.local_available(what)) for what, amount in requests.items()}
