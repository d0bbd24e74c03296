"""The state of the simulation: queues with their policies, and the workloads in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from launcher.k8s.kueue.queues import ClusterQueue, FlavorResource, queue_order
from launcher.k8s.kueue.quota import QuotaNode
from launcher.products.planner.scheduler.model import Flavors, Job

Usage = dict[FlavorResource, Decimal]
"""An amount for each flavor and resource."""

_ZERO = Decimal()
NEVER = "Never"
ANY = "Any"
LOWER_PRIORITY = "LowerPriority"
LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
_TRY_NEXT = "TryNextFlavor"


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of a ClusterQueue for preemption and the search for flavors, with the defaults of Kueue's API."""

    within: str = NEVER
    reclaim: str = NEVER
    borrow_and_preempt: bool = False  # borrowWithinCohort.policy is LowerPriority
    borrow_threshold: int | None = None
    next_flavor_if_borrowing: bool = False
    next_flavor_if_preempting: bool = True
    prefers_preemption: bool = False

    @classmethod
    def of(cls, queue: ClusterQueue) -> Policies:
        """Read the policies of a ClusterQueue, v1beta1 or v1beta2."""
        preemption = queue.spec.get("preemption") or {}
        borrow = preemption.get("borrowWithinCohort") or {}
        search = queue.spec.get("flavorFungibility") or {}
        return cls(
            within=preemption.get("withinClusterQueue") or NEVER,
            reclaim=preemption.get("reclaimWithinCohort") or NEVER,
            borrow_and_preempt=(borrow.get("policy") or NEVER) != NEVER,
            borrow_threshold=borrow.get("maxPriorityThreshold"),
            next_flavor_if_borrowing=search.get("whenCanBorrow") == _TRY_NEXT,
            next_flavor_if_preempting=(search.get("whenCanPreempt") or _TRY_NEXT) == _TRY_NEXT,
            prefers_preemption=search.get("preference") == "PreemptionOverBorrowing",
        )


class JobState:
    """A job in its queue, waiting or with quota. `usage` has the quota that it holds."""

    __slots__ = (
        "admitted",
        "created",
        "evicted",
        "evictions",
        "flavors",
        "job",
        "kept",
        "last_tried",
        "memo",
        "priority",
        "queue",
        "reserved",
        "shape",
        "tried_in",
        "usage",
    )

    def __init__(self, job: Job, queue: QueueState) -> None:
        self.job = job
        self.queue = queue
        self.priority = job.priority
        self.created = job.created
        self.shape = (
            job.priority,
            tuple((tuple(sorted(each.amounts.items())), each.flavors) for each in job.pod_sets),
        )
        self.usage: Usage = {}
        self.flavors: Flavors = ()
        self.reserved = 0.0  # when quota was reserved for it
        self.admitted = 0.0  # when its time started to run
        self.evicted = False  # it is being stopped, and still holds its quota
        self.evictions = 0
        self.kept = 0.0  # seconds of its time that it need not repeat
        self.last_tried: tuple[Mapping[str, int], ...] = ()  # the flavors that it has tried, if it has more to try
        self.tried_in = 0  # the version of the state in which it has tried them
        self.memo: tuple[int, object] | None = None  # the last nomination, and the version of the state it is for

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def order(self) -> tuple[int, float, str]:
        """Its place in its queue: by priority, then by age. Kueue's last criterion is the UID, here it is the name."""
        return queue_order(self.priority, self.created, self.job.name)

    def try_next(self, tried: Sequence[Mapping[str, int]], version: int) -> None:
        """Continue with the flavors after those that it has tried, or with the first if it has none left."""
        self.last_tried, self.tried_in, self.memo = tuple(tried), version, None

    def holds(self, kinds: frozenset[FlavorResource]) -> bool:
        return not kinds.isdisjoint(self.usage)


class QueueState:
    """A ClusterQueue: its quota, its policies, and the workloads that hold its quota."""

    def __init__(self, source: ClusterQueue, node: QuotaNode) -> None:
        self.source = source
        self.node = node
        self.name = source.name
        self.policies = Policies.of(source)
        self.strict = source.strict
        self.active = not source.stopped
        self.running: dict[str, JobState] = {}
        self._held: dict[FlavorResource, dict[int, Decimal]] = {}  # the usage of the running workloads by priority
        self._largest: dict[FlavorResource, Decimal] = {}  # the largest usage of one workload so far

    def start(self, workload: JobState) -> None:
        """Add a workload that holds quota."""
        self.running[workload.name] = workload
        for what, amount in workload.usage.items():
            held = self._held.setdefault(what, {})
            held[workload.priority] = held.get(workload.priority, _ZERO) + amount
            self._largest[what] = max(amount, self._largest.get(what, _ZERO))

    def stop(self, workload: JobState) -> None:
        """Remove a workload that has released its quota."""
        del self.running[workload.name]
        for what, amount in workload.usage.items():
            self._held[what][workload.priority] -= amount

    def preemptible(self, what: FlavorResource, policy: str, priority: int) -> Decimal:
        """Return at least what the workloads hold that a policy allows a workload of a priority to preempt."""
        held = self._held.get(what)
        if not held or policy == NEVER:
            return _ZERO
        most = None if policy == ANY else priority if policy == LOWER_OR_NEWER else priority - 1
        return sum((amount for each, amount in held.items() if most is None or each <= most), _ZERO)

    def reclaimable(self, what: FlavorResource, policy: str, priority: int) -> Decimal:
        """Return at least what other queues can reclaim: preemption stops when this queue does not borrow any more."""
        borrowed = self.node.used(what) - self.node.subtree_quota(what)
        if borrowed <= 0:
            return _ZERO
        return min(self.preemptible(what, policy, priority), borrowed + self._largest.get(what, _ZERO))

    @cached_property
    def can_always_reclaim(self) -> bool:
        """Whether it can take back all quota that others have borrowed (pkg/scheduler/preemption/policy.go)."""
        return self.policies.reclaim == ANY

    def flavors_of(self, resource: str) -> tuple[frozenset[str], tuple[str, ...]] | None:
        """Return the resources and the flavors of the resource group of a resource."""
        return self._groups.get(resource)

    @cached_property
    def _groups(self) -> Mapping[str, tuple[frozenset[str], tuple[str, ...]]]:
        return {
            resource: (frozenset(group.resources), group.flavors)
            for group in self.source.groups
            for resource in group.resources
        }


class RootCohort:
    """The ClusterQueues of one tree of cohorts, or one queue without a cohort. Root cohorts do not affect each other.

    `version` changes with each change of what they hold, so that results of an unchanged state can be used again.
    """

    def __init__(self, root: QuotaNode) -> None:
        self.root = root
        self.queues: dict[str, QueueState] = {}
        self.version = 0

    def add_usage(self, workload: JobState) -> None:
        """Count the usage of a workload."""
        for what, amount in workload.usage.items():
            workload.queue.node.add_usage(what, amount)

    def remove_usage(self, workload: JobState) -> None:
        """Do not count the usage of a workload any more."""
        for what, amount in workload.usage.items():
            workload.queue.node.remove_usage(what, amount)

    def queue_of(self, node: QuotaNode) -> QueueState | None:
        """Return the queue of a node; None for a cohort."""
        queue = self.queues.get(node.name)
        return queue if queue is not None and queue.node is node else None
