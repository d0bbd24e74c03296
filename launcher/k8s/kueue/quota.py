"""Quota of ClusterQueues and cohorts: the total, the usage, and the amount available to one queue. Pure functions.

The arithmetic is that of Kueue's cache (pkg/cache/scheduler/resource_node.go, 0.16 to 0.19). A queue has its nominal
quota and lends all of it except what its lending limit reserves. It borrows from its cohort up to its borrowing limit.
Cohorts do the same with their parent. The simulation of the scheduler changes the usage; all others read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import IntEnum

from launcher.k8s.kueue.queues import ClusterQueue, Cohort, FlavorResource, Quota, ResourceGroup

_ZERO = Decimal()
_NONE = Quota()


class Fit(IntEnum):
    """How well a request fits a queue, from best to worst."""

    NOW = 0
    WAITS = 1  # until others release quota
    TOO_LARGE = 2  # more than the queue can ever get
    NO_FLAVOR = 3  # no flavor of the queue matches the pods
    NOT_COVERED = 4  # the queue has no quota for this resource


class QuotaNode:
    """A ClusterQueue or a cohort in the tree, with the usage that counts against its quota.

    Its place and its quotas must not change after the first call of a method: what follows from them is cached.
    """

    __slots__ = ("_fixed", "_height", "_potential_available", "children", "name", "parent", "quotas", "usage")

    def __init__(self, name: str, quotas: Mapping[FlavorResource, Quota] | None = None) -> None:
        self.name = name
        self.quotas: Mapping[FlavorResource, Quota] = quotas or {}
        self.parent: QuotaNode | None = None
        self.children: list[QuotaNode] = []
        self.usage: dict[FlavorResource, Decimal] = {}
        self._fixed: dict[FlavorResource, tuple[Decimal, Decimal, Decimal | None]] = {}
        self._potential_available: dict[FlavorResource, Decimal] = {}
        self._height: int | None = None

    # --- quota, which does not change ---

    def subtree_quota(self, what: FlavorResource) -> Decimal:
        """Return the quota of this node plus what its children lend it."""
        return (self._fixed.get(what) or self._fix(what))[0]

    def local_quota(self, what: FlavorResource) -> Decimal:
        """Return the quota that this node does not lend."""
        return (self._fixed.get(what) or self._fix(what))[1]

    def _fix(self, what: FlavorResource) -> tuple[Decimal, Decimal, Decimal | None]:
        """Compute the subtree quota, the local quota, and the borrowing limit (None: no limit). They do not change."""
        quota = self.quotas.get(what, _NONE)
        lent = (child.subtree_quota(what) - child.local_quota(what) for child in self.children)
        subtree_quota = quota.nominal + sum(lent, _ZERO)
        limit = quota.lending_limit
        local_quota = _ZERO if limit is None or self.parent is None else max(_ZERO, subtree_quota - limit)
        return self._fixed.setdefault(what, (subtree_quota, local_quota, quota.borrowing_limit))

    def potential_available(self, what: FlavorResource) -> Decimal:
        """Return the maximum available to this node if nothing is in use."""
        amount = self._potential_available.get(what)
        if amount is None:
            amount = self.subtree_quota(what)
            if self.parent is not None:
                limit = self.quotas.get(what, _NONE).borrowing_limit
                most = self.local_quota(what) + self.parent.potential_available(what)
                amount = most if limit is None else min(most, amount + limit)
            self._potential_available[what] = amount
        return amount

    @property
    def kinds(self) -> set[FlavorResource]:
        """Every flavor and resource that this node or a node below it has quota for."""
        return set(self.quotas).union(*(child.kinds for child in self.children))

    @property
    def root(self) -> QuotaNode:
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def ancestors(self) -> Iterator[QuotaNode]:
        """The cohorts above this node, the nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    @property
    def height(self) -> int:
        """The distance to the furthest leaf below."""
        if self._height is None:
            self._height = max((child.height + 1 for child in self.children), default=0)
        return self._height

    def queues(self) -> Iterator[QuotaNode]:
        """Yield the ClusterQueues below a cohort, or the ClusterQueue itself."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.queues()

    # --- usage ---

    def used(self, what: FlavorResource) -> Decimal:
        """Return the usage of this node's own quota and of what its children lend it."""
        return self.usage.get(what, _ZERO)

    def add_usage(self, what: FlavorResource, amount: Decimal) -> None:
        """Add usage. The part that exceeds what this node does not lend counts against its parent too."""
        before = self.usage.get(what, _ZERO)
        self.usage[what] = before + amount
        if self.parent is not None:
            above = amount - max(_ZERO, self.local_quota(what) - before)
            if above > 0:
                self.parent.add_usage(what, above)

    def remove_usage(self, what: FlavorResource, amount: Decimal) -> None:
        """Remove usage that was added."""
        before = self.usage.get(what, _ZERO)
        self.usage[what] = before - amount
        if self.parent is not None:
            above = before - self.local_quota(what)
            if above > 0:
                self.parent.remove_usage(what, min(amount, above))

    def local_available(self, what: FlavorResource) -> Decimal:
        """Return the free quota that this node does not lend."""
        return max(_ZERO, self.local_quota(what) - self.usage.get(what, _ZERO))

    def available(self, what: FlavorResource, *, limited: bool = True) -> Decimal:
        """Return what is available to this node now. May be negative.

        If `limited` is false, ignore this node's borrowing limit.
        """
        subtree_quota, local_quota, limit = self._fixed.get(what) or self._fix(what)
        used = self.usage.get(what, _ZERO)
        if self.parent is None:
            return subtree_quota - used
        above = self.parent.available(what)
        own = local_quota - used
        if limited and limit is not None:
            above = min(above, limit + (subtree_quota - local_quota if own > 0 else subtree_quota - used))
        return own + above if own > 0 else above

    def fit(self, what: FlavorResource, amount: Decimal) -> Fit:
        """Return whether the quota that is free now is enough for an amount, and if not, whether it can ever be."""
        if amount > self.potential_available(what):
            return Fit.TOO_LARGE
        return Fit.NOW if amount <= max(_ZERO, self.available(what)) else Fit.WAITS

    def is_borrowing_with(self, what: FlavorResource, more: Decimal = _ZERO) -> bool:
        """Return whether the usage and `more` exceed the subtree quota."""
        return self.usage.get(what, _ZERO) + more > (self._fixed.get(what) or self._fix(what))[0]


class Quotas:
    """The quota and usage of the given ClusterQueues and cohorts, from their spec and status.

    As in Kueue, a cohort exists if a queue names it, even without an object of its own.
    """

    def __init__(self, cluster_queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort] = ()) -> None:
        self._queues: dict[str, QuotaNode] = {}
        self.cohorts: dict[str, QuotaNode] = {}
        for cohort in cohorts:
            node = self._cohort(cohort.name)
            node.quotas = cohort.quotas
            self._hang(node, cohort.parent)
        self._groups: dict[str, Sequence[ResourceGroup]] = {}
        used = {}
        for queue in cluster_queues:
            node = self._queues[queue.name] = QuotaNode(queue.name, queue.quotas)
            self._hang(node, queue.cohort)
            self._groups[queue.name] = queue.groups
            used[queue.name] = queue.used
        for name, amounts in used.items():
            for what, amount in amounts.items():
                self._queues[name].add_usage(what, amount)

    def __contains__(self, queue: str) -> bool:
        return queue in self._queues

    def node(self, queue: str) -> QuotaNode:
        """Return the node of a ClusterQueue."""
        return self._queues[queue]

    def flavors(self, queue: str, resource: str) -> Sequence[str]:
        """Return the flavors of a queue for a resource, in the order that Kueue tries them; () if there are none."""
        for group in self._groups.get(queue, ()):
            if resource in group.resources:
                return group.flavors
        return ()

    def resources(self, queue: str) -> list[str]:
        """Return all resources for which a queue has quota."""
        return [resource for group in self._groups.get(queue, ()) for resource in group.resources]

    def quota(self, queue: str, what: FlavorResource) -> Quota:
        return self._queues[queue].quotas.get(what, _NONE)

    def potential_available(self, queue: str, what: FlavorResource) -> Decimal:
        """Return the maximum that a run in this queue can ever get."""
        return self._queues[queue].potential_available(what)

    def available(self, queue: str, what: FlavorResource, *, limited: bool = True) -> Decimal:
        """Return what a run in this queue can get now, including borrowing, with or without its limit. At least 0."""
        return max(_ZERO, self._queues[queue].available(what, limited=limited))

    def used(self, queue: str, what: FlavorResource) -> Decimal:
        """Return what the runs of this queue hold, from its status."""
        return self._queues[queue].used(what)

    def cohort(self, queue: str) -> str:
        """Return the cohort of a queue, or "" if it has none."""
        parent = self._queues[queue].parent
        return parent.name if parent else ""

    def root_cohort_queues(self, queue: str) -> list[str]:
        """Return the ClusterQueues under the same root cohort, which share quota with this one. Includes the queue."""
        return [below.name for below in self._queues[queue].root.queues() if self._queues.get(below.name) is below]

    def local_available(self, queue: str, what: FlavorResource) -> Decimal:
        """Return the free quota that a queue does not lend."""
        return self._queues[queue].local_available(what)

    def _cohort(self, called: str) -> QuotaNode:
        return self.cohorts.setdefault(called, QuotaNode(called))

    def _hang(self, node: QuotaNode, parent: str) -> None:
        above: QuotaNode | None = self._cohort(parent) if parent else None
        node.parent = above
        walk = above
        while walk is not None:  # Kueue makes a cycle of cohorts inactive; here it is cut
            if walk is node:
                node.parent = None
                return
            walk = walk.parent
        if above is not None:
            above.children.append(node)
