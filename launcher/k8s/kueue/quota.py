"""Quota of ClusterQueues and cohorts: the total, the usage, and the amount available to one queue. Pure functions.

The arithmetic is that of Kueue's cache (resource nodes). A queue has its nominal quota and lends all of it except what
its lending limit reserves. It borrows from its cohort up to its borrowing limit. Cohorts do the same with their parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from launcher.k8s.kueue.queues import ClusterQueue, Cohort, FlavorResource, Quota, ResourceGroup

_ZERO = Decimal()
_NONE = Quota()


@dataclass
class _Node:
    """A ClusterQueue or a cohort in the tree."""

    name: str
    parent: _Node | None = None
    children: list[_Node] = field(default_factory=list)
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    used: Mapping[FlavorResource, Decimal] = field(default_factory=dict)  # of a ClusterQueue: from its status
    totals: dict[FlavorResource, Decimal] = field(default_factory=dict)  # of the subtree, cached

    def total(self, what: FlavorResource) -> Decimal:
        """Return the quota of this node plus what its children lend it."""
        if what not in self.totals:
            self.totals[what] = self.quotas.get(what, _NONE).nominal + sum(
                (child.total(what) - child.not_lent(what) for child in self.children), _ZERO
            )
        return self.totals[what]

    def not_lent(self, what: FlavorResource) -> Decimal:
        """Return the quota that this node does not lend."""
        limit = self.quotas.get(what, _NONE).lending_limit
        return _ZERO if limit is None or self.parent is None else max(_ZERO, self.total(what) - limit)

    def usage(self, what: FlavorResource) -> Decimal:
        """Return the usage of this node's own quota and of what its children lend it."""
        return self.used.get(what, _ZERO) + sum(
            (max(_ZERO, child.usage(what) - child.not_lent(what)) for child in self.children), _ZERO
        )

    def capacity(self, what: FlavorResource) -> Decimal:
        """Return the maximum available to this node if nothing is in use."""
        if self.parent is None:
            return self.total(what)
        most = self.not_lent(what) + self.parent.capacity(what)
        limit = self.quotas.get(what, _NONE).borrowing_limit
        return most if limit is None else min(most, self.total(what) + limit)

    def free(self, what: FlavorResource, *, limited: bool = True) -> Decimal:
        """Return what is available to this node now. May be negative.

        If `limited` is false, ignore this node's borrowing limit.
        """
        used = self.usage(what)
        if self.parent is None:
            return self.total(what) - used
        not_lent = self.not_lent(what)
        above = self.parent.free(what)
        limit = self.quotas.get(what, _NONE).borrowing_limit
        if limited and limit is not None:
            above = min(above, self.total(what) - not_lent - max(_ZERO, used - not_lent) + limit)
        return max(_ZERO, not_lent - used) + above

    def queues(self) -> Iterator[_Node]:
        """Yield the ClusterQueues below a cohort, or the ClusterQueue itself."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.queues()


class Quotas:
    """The quota and usage of the given ClusterQueues and cohorts, from their spec and status.

    As in Kueue, a cohort exists if a queue names it, even without an object of its own.
    """

    def __init__(self, cluster_queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort] = ()) -> None:
        self._queues: dict[str, _Node] = {}
        self._cohorts: dict[str, _Node] = {}
        for cohort in cohorts:
            node = self._cohort(cohort.name)
            node.quotas = cohort.quotas
            self._hang(node, cohort.parent)
        self._groups: dict[str, Sequence[ResourceGroup]] = {}
        for queue in cluster_queues:
            node = self._queues[queue.name] = _Node(queue.name, quotas=queue.quotas, used=queue.used)
            self._hang(node, queue.cohort)
            self._groups[queue.name] = queue.groups

    def __contains__(self, queue: str) -> bool:
        return queue in self._queues

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

    def capacity(self, queue: str, what: FlavorResource) -> Decimal:
        """Return the maximum that a run in this queue can ever get."""
        return self._queues[queue].capacity(what)

    def free(self, queue: str, what: FlavorResource) -> Decimal:
        """Return what a run in this queue can get now, including borrowing. At least 0."""
        return max(_ZERO, self._queues[queue].free(what))

    def free_without_borrowing_limit(self, queue: str, what: FlavorResource) -> Decimal:
        return max(_ZERO, self._queues[queue].free(what, limited=False))

    def used(self, queue: str, what: FlavorResource) -> Decimal:
        """Return what the runs of this queue hold, from its status."""
        return self._queues[queue].used.get(what, _ZERO)

    def cohort(self, queue: str) -> str:
        """Return the cohort of a queue, or "" if it has none."""
        parent = self._queues[queue].parent
        return parent.name if parent else ""

    def family(self, queue: str) -> list[str]:
        """Return the ClusterQueues under the same root cohort, which share quota with this one. Includes the queue."""
        node = self._queues[queue]
        while node.parent is not None:
            node = node.parent
        return [below.name for below in node.queues() if self._queues.get(below.name) is below]

    def keeps(self, queue: str, what: FlavorResource) -> Decimal:
        """Return the free quota that a queue does not lend."""
        node = self._queues[queue]
        return max(_ZERO, node.not_lent(what) - node.usage(what))

    def _cohort(self, called: str) -> _Node:
        return self._cohorts.setdefault(called, _Node(called))

    def _hang(self, node: _Node, parent: str) -> None:
        above: _Node | None = self._cohort(parent) if parent else None
        node.parent = above
        walk = above
        while walk is not None:  # Kueue makes a cycle of cohorts inactive; here it is cut
            if walk is node:
                node.parent = None
                return
            walk = walk.parent
        if above is not None:
            above.children.append(node)
