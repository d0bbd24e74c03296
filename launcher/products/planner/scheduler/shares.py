"""The dominant resource share of queues and cohorts, for fair sharing (pkg/cache/scheduler/fair_sharing.go, 0.19)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from launcher.k8s.kueue.queues import FlavorResource
from launcher.k8s.kueue.quota import QuotaNode
from launcher.k8s.objects import quantity

_ZERO = Decimal()


@dataclass(frozen=True, slots=True)
class Share:
    """How much a node borrows of what its cohort can lend: the largest ratio of all resources, in thousandths.

    `borrowed` has the flavors and resources that it borrows.
    """

    ratio: float
    weight: float
    borrowed: frozenset[FlavorResource]

    @property
    def without_weight(self) -> bool:
        """Whether a node of weight 0 borrows. Its share is infinite."""
        return self.weight == 0 and bool(self.borrowed)

    @property
    def order(self) -> tuple[bool, float]:
        """The key that shares are compared by."""
        if self.without_weight:
            return True, self.ratio
        return False, self.ratio / self.weight if self.ratio else 0.0


class Shares:
    """The shares in one tree of cohorts, by the weights of its nodes."""

    def __init__(self, weights: Mapping[int, float]) -> None:
        """`weights` has the weight of each node, by its id; 1 if it is not there."""
        self._weights = weights
        self._lendable: dict[int, dict[str, float]] = {}
        self._kinds: dict[int, list[FlavorResource]] = {}

    def share(self, node: QuotaNode) -> Share:
        """Return the share of a node with its current usage."""
        weight = self._weights.get(id(node), 1.0)
        if node.parent is None:
            return Share(0.0, weight, frozenset())
        borrowed: dict[str, Decimal] = {}
        kinds = []
        for what in self._kinds_of(node):
            amount = node.used(what) - node.subtree_quota(what)
            if amount > 0:
                borrowed[what[1]] = borrowed.get(what[1], _ZERO) + amount
                kinds.append(what)
        lendable = self._lendable_of(node.parent) if borrowed else {}
        ratio = max(
            (
                float(amount) * 1000.0 / lendable[resource]
                for resource, amount in borrowed.items()
                if lendable.get(resource, 0.0) > 0
            ),
            default=0.0,
        )
        return Share(ratio, weight, frozenset(kinds))

    def _kinds_of(self, node: QuotaNode) -> list[FlavorResource]:
        if id(node) not in self._kinds:
            self._kinds[id(node)] = sorted(node.kinds)
        return self._kinds[id(node)]

    def _lendable_of(self, cohort: QuotaNode) -> dict[str, float]:
        """Return the capacity of a cohort by resource, over all flavors."""
        if id(cohort) not in self._lendable:
            lendable: dict[str, float] = {}
            for what in self._kinds_of(cohort.root):
                lendable[what[1]] = lendable.get(what[1], 0.0) + float(cohort.potential_available(what))
            self._lendable[id(cohort)] = lendable
        return self._lendable[id(cohort)]


def weight_of(spec: Mapping[str, object]) -> float:
    """Return the weight of a ClusterQueue or Cohort from its spec; 1 if it has none."""
    fair = spec.get("fairSharing")
    value = fair.get("weight") if isinstance(fair, Mapping) else None
    if value is None:
        return 1.0
    weight = float(quantity(value))
    return weight if math.isfinite(weight) and weight >= 0 else 1.0
