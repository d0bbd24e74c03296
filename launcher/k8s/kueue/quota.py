"""Quota: what a ClusterQueue and its cohorts have, what is in use, and how much one queue can get at. Pure.

The arithmetic is that of Kueue's cache (resource nodes): a queue counts what it has, lends all of it but what its
lending limit keeps back, and takes from its cohort up to its borrowing limit; cohorts do the same with their parent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from launcher.k8s.kueue.workloads import FlavorResource
from launcher.k8s.objects import name, quantity, status

Object = Mapping[str, Any]
_ZERO = Decimal()


@dataclass(frozen=True)
class Quota:
    """What is given to a queue or cohort of one resource in one flavor; None: no limit."""

    nominal: Decimal = _ZERO
    borrowing_limit: Decimal | None = None
    lending_limit: Decimal | None = None


_NONE = Quota()


@dataclass
class _Node:
    """A ClusterQueue or a cohort in the tree."""

    name: str
    parent: _Node | None = None
    children: list[_Node] = field(default_factory=list)
    quotas: dict[FlavorResource, Quota] = field(default_factory=dict)
    used: dict[FlavorResource, Decimal] = field(default_factory=dict)  # of a ClusterQueue: what its status says
    totals: dict[FlavorResource, Decimal] = field(default_factory=dict)  # subtree, once computed

    def total(self, what: FlavorResource) -> Decimal:
        """What this node has, with all that its children lend it."""
        if what not in self.totals:
            self.totals[what] = self.quotas.get(what, _NONE).nominal + sum(
                (child.total(what) - child.kept(what) for child in self.children), _ZERO
            )
        return self.totals[what]

    def kept(self, what: FlavorResource) -> Decimal:
        """What this node does not lend."""
        limit = self.quotas.get(what, _NONE).lending_limit
        return _ZERO if limit is None or self.parent is None else max(_ZERO, self.total(what) - limit)

    def usage(self, what: FlavorResource) -> Decimal:
        """What is in use of this node's own, and of what its children lend it."""
        return self.used.get(what, _ZERO) + sum(
            (max(_ZERO, child.usage(what) - child.kept(what)) for child in self.children), _ZERO
        )

    def capacity(self, what: FlavorResource) -> Decimal:
        """The most that could be had here if nobody used anything."""
        if self.parent is None:
            return self.total(what)
        most = self.kept(what) + self.parent.capacity(what)
        limit = self.quotas.get(what, _NONE).borrowing_limit
        return most if limit is None else min(most, self.total(what) + limit)

    def free(self, what: FlavorResource, *, limited: bool = True) -> Decimal:
        """What could be had here now; without `limited`, as if this node had no borrowing limit. May be negative."""
        used = self.usage(what)
        if self.parent is None:
            return self.total(what) - used
        kept = self.kept(what)
        above = self.parent.free(what)
        limit = self.quotas.get(what, _NONE).borrowing_limit
        if limited and limit is not None:
            above = min(above, self.total(what) - kept - max(_ZERO, used - kept) + limit)
        return max(_ZERO, kept - used) + above

    def queues(self) -> Iterator[_Node]:
        """The ClusterQueues below a cohort; a ClusterQueue itself."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.queues()


class Quotas:
    """The quota of all ClusterQueues and cohorts that are given, as of their status.

    A cohort that is only named by its queues, with no object of its own, exists all the same: that is Kueue's rule.
    """

    def __init__(self, cluster_queues: Iterable[Object], cohorts: Iterable[Object] = ()) -> None:
        self._queues: dict[str, _Node] = {}
        self._cohorts: dict[str, _Node] = {}
        for cohort in cohorts:
            node = self._cohort(name(cohort))
            node.quotas = _quotas(cohort)
            self._hang(node, str(cohort["spec"].get("parentName") or cohort["spec"].get("parent") or ""))
        self._groups: dict[str, list[tuple[list[str], list[str]]]] = {}
        for queue in cluster_queues:
            node = self._queues[name(queue)] = _Node(name(queue), quotas=_quotas(queue), used=_used(queue))
            self._hang(node, str(queue["spec"].get("cohortName") or queue["spec"].get("cohort") or ""))
            self._groups[name(queue)] = [
                (list(group.get("coveredResources") or []), [str(entry["name"]) for entry in group["flavors"]])
                for group in queue["spec"].get("resourceGroups") or []
            ]

    def __contains__(self, queue: str) -> bool:
        return queue in self._queues

    def flavors(self, queue: str, resource: str) -> list[str]:
        """The flavors that a queue has for a resource, in the order that Kueue tries them; [] where it has none."""
        for covered, flavors in self._groups.get(queue, []):
            if resource in covered:
                return flavors
        return []

    def resources(self, queue: str) -> list[str]:
        """All resources that a queue has quota for."""
        return [resource for covered, _ in self._groups.get(queue, []) for resource in covered]

    def quota(self, queue: str, what: FlavorResource) -> Quota:
        return self._queues[queue].quotas.get(what, _NONE)

    def capacity(self, queue: str, what: FlavorResource) -> Decimal:
        """The most that a run of this queue could ever have."""
        return self._queues[queue].capacity(what)

    def free(self, queue: str, what: FlavorResource) -> Decimal:
        """What a run of this queue could have now, borrowing included; never below 0."""
        return max(_ZERO, self._queues[queue].free(what))

    def free_without_borrowing_limit(self, queue: str, what: FlavorResource) -> Decimal:
        return max(_ZERO, self._queues[queue].free(what, limited=False))

    def used(self, queue: str, what: FlavorResource) -> Decimal:
        """What the runs of this queue hold, as its status says."""
        return self._queues[queue].used.get(what, _ZERO)

    def cohort(self, queue: str) -> str:
        """The cohort that a queue is in; "" for none."""
        parent = self._queues[queue].parent
        return parent.name if parent else ""

    def family(self, queue: str) -> list[str]:
        """The ClusterQueues that share quota with this one, itself included: those under the same topmost cohort."""
        node = self._queues[queue]
        while node.parent is not None:
            node = node.parent
        return [below.name for below in node.queues() if self._queues.get(below.name) is below]

    def keeps(self, queue: str, what: FlavorResource) -> Decimal:
        """What a queue has free now and does not lend."""
        node = self._queues[queue]
        return max(_ZERO, node.kept(what) - node.usage(what))

    def _cohort(self, called: str) -> _Node:
        return self._cohorts.setdefault(called, _Node(called))

    def _hang(self, node: _Node, parent: str) -> None:
        above: _Node | None = self._cohort(parent) if parent else None
        node.parent = above
        walk = above
        while walk is not None:  # Kueue holds a cycle of cohorts inactive; here it is cut
            if walk is node:
                node.parent = None
                return
            walk = walk.parent
        if above is not None:
            above.children.append(node)


def _quotas(obj: Object) -> dict[FlavorResource, Quota]:
    found: dict[FlavorResource, Quota] = {}
    for group in obj["spec"].get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            for entry in flavor.get("resources") or []:
                found[str(flavor["name"]), str(entry["name"])] = Quota(
                    quantity(entry.get("nominalQuota", 0)),
                    _limit(entry, "borrowingLimit"),
                    _limit(entry, "lendingLimit"),
                )
    return found


def _limit(entry: Object, key: str) -> Decimal | None:
    return None if entry.get(key) is None else quantity(entry[key])


def _used(queue: Object) -> dict[FlavorResource, Decimal]:
    """What a ClusterQueue's runs hold, reserved and admitted."""
    used: defaultdict[FlavorResource, Decimal] = defaultdict(Decimal)
    for flavor in status(queue).get("flavorsReservation") or []:
        for entry in flavor.get("resources") or []:
            used[str(flavor["name"]), str(entry["name"])] = quantity(entry.get("total", 0))
    return dict(used)
