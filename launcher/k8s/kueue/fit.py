"""Whether a Workload fits its queue, and if not, what is in the way: Kueue's flavor assigner, in small. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import IntEnum
from typing import Any

from launcher.k8s.kueue.quota import Quotas
from launcher.k8s.kueue.workloads import FlavorResource, Mismatch, PodSet, mismatch

Object = Mapping[str, Any]


class Fit(IntEnum):
    """How well something fits, the worst last."""

    NOW = 0
    WAITS = 1  # for others to give quota back
    TOO_LARGE = 2  # more than the queue could ever have
    NO_FLAVOR = 3  # no flavor of the queue takes such pods
    NOT_COVERED = 4  # the queue has no quota of this resource at all


@dataclass(frozen=True)
class FlavorFit:
    """How a resource that a pod set asks for fits; where it does not, `need` is that of all pod sets of its flavor.

    `flavor` is the one that comes closest, "" where none takes the pods: then `mismatches` say why.
    """

    fit: Fit
    pod_set: PodSet
    resource: str
    flavor: str = ""
    need: Decimal = Decimal()
    free: Decimal = Decimal()
    capacity: Decimal = Decimal()
    mismatches: tuple[Mismatch, ...] = ()

    @property
    def what(self) -> FlavorResource:
        return self.flavor, self.resource


def flavor_fits(sets: Sequence[PodSet], queue: str, quotas: Quotas, flavors: Mapping[str, Object]) -> list[FlavorFit]:
    """One verdict for each resource of each pod set, the worst first; what does not fit needs what all pod sets need.

    Kueue gives all resources of a pod set that share a resource group the same flavor, the first that fits; and what
    the pod sets before it were given is no longer free.
    """
    given: defaultdict[FlavorResource, Decimal] = defaultdict(Decimal)
    found: list[FlavorFit] = []
    for pod_set in sets:
        groups: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for resource, amount in pod_set.asks.items():
            tried = tuple(quotas.flavors(queue, resource))
            if tried:
                groups[tried].append(resource)
            elif amount:
                found.append(FlavorFit(Fit.NOT_COVERED, pod_set, resource, need=amount))
        for tried, resources in groups.items():
            chosen = _group(pod_set, resources, tried, queue, quotas, flavors, given)
            found += chosen
            for verdict in chosen:
                given[verdict.what] += pod_set.asks[verdict.resource]
    whole = [
        replace(verdict, need=given[verdict.what]) if verdict.fit in (Fit.WAITS, Fit.TOO_LARGE) else verdict
        for verdict in found
    ]
    return sorted(whole, key=lambda verdict: -verdict.fit)


def _group(
    pod_set: PodSet,
    resources: Sequence[str],
    tried: Sequence[str],
    queue: str,
    quotas: Quotas,
    flavors: Mapping[str, Object],
    given: Mapping[FlavorResource, Decimal],
) -> list[FlavorFit]:
    """The verdicts of the resources of one group, for the flavor that comes closest."""
    why = {flavor: mismatch(flavors[flavor], pod_set.spec) for flavor in tried if flavor in flavors}
    candidates = [
        [_flavor_fit(pod_set, resource, flavor, queue, quotas, given) for resource in resources]
        for flavor, missed in why.items()
        if missed is None
    ]
    if not candidates:
        missed = tuple(entry for entry in why.values() if entry is not None)
        return [
            FlavorFit(Fit.NO_FLAVOR, pod_set, resource, need=pod_set.asks[resource], mismatches=missed)
            for resource in resources
        ]
    return min(candidates, key=lambda fits: (max(each.fit for each in fits), sum(_short(each) for each in fits)))


def _flavor_fit(
    pod_set: PodSet, resource: str, flavor: str, queue: str, quotas: Quotas, given: Mapping[FlavorResource, Decimal]
) -> FlavorFit:
    what = (flavor, resource)
    need = pod_set.asks[resource] + given.get(what, Decimal())
    free, capacity = quotas.free(queue, what), quotas.capacity(queue, what)
    fit = Fit.TOO_LARGE if need > capacity else Fit.WAITS if need > free else Fit.NOW
    return FlavorFit(fit, pod_set, resource, flavor, need, free, capacity)


def _short(verdict: FlavorFit) -> Decimal:
    """How much is missing, in parts of what is needed."""
    bound = verdict.capacity if verdict.fit is Fit.TOO_LARGE else verdict.free
    return max(Decimal(), verdict.need - bound) / verdict.need if verdict.need else Decimal()
