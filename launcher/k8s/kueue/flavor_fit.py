"""Why a Workload does not fit its queue now: the verdict for each resource, with its flavor and amounts. Pure.

The simulation (launcher/products/planner/scheduler) decides what happens next, with the same arithmetic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from launcher.k8s.kueue.queues import FlavorResource, ResourceFlavor
from launcher.k8s.kueue.quota import Fit, Quotas
from launcher.k8s.kueue.workloads import Mismatch, PodSet, mismatch


@dataclass(frozen=True)
class FlavorFit:
    """The fit of a resource that a pod set requests.

    If it does not fit, `need` is the total of all pod sets with the same flavor. `flavor` is the closest flavor, or ""
    if no flavor matches the pods; then `mismatches` has the reasons.
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


def flavor_fits(
    sets: Sequence[PodSet], queue: str, quotas: Quotas, flavors: Mapping[str, ResourceFlavor]
) -> list[FlavorFit]:
    """Return one verdict for each resource of each pod set, the worst first.

    If a resource does not fit, its `need` is the total of all pod sets. Kueue assigns the same flavor, the first that
    fits, to all resources of a pod set in one resource group. Quota assigned to earlier pod sets is no longer free.
    """
    given: defaultdict[FlavorResource, Decimal] = defaultdict(Decimal)
    verdicts: list[FlavorFit] = []
    for pod_set in sets:
        groups: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for resource, amount in pod_set.asks.items():
            tried = tuple(quotas.flavors(queue, resource))
            if tried:
                groups[tried].append(resource)
            elif amount:
                verdicts.append(FlavorFit(Fit.NOT_COVERED, pod_set, resource, need=amount))
        for tried, resources in groups.items():
            chosen = _group(pod_set, resources, tried, queue, quotas, flavors, given)
            verdicts += chosen
            for verdict in chosen:
                given[verdict.what] += pod_set.asks[verdict.resource]
    whole = [
        replace(verdict, need=given[verdict.what]) if verdict.fit in (Fit.WAITS, Fit.TOO_LARGE) else verdict
        for verdict in verdicts
    ]
    return sorted(whole, key=lambda verdict: -verdict.fit)


def _group(
    pod_set: PodSet,
    resources: Sequence[str],
    tried: Sequence[str],
    queue: str,
    quotas: Quotas,
    flavors: Mapping[str, ResourceFlavor],
    given: Mapping[FlavorResource, Decimal],
) -> list[FlavorFit]:
    """Return the verdicts of one resource group for the closest flavor."""
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
    free, capacity = quotas.available(queue, what), quotas.potential_available(queue, what)
    return FlavorFit(quotas.node(queue).fit(what, need), pod_set, resource, flavor, need, free, capacity)


def _short(verdict: FlavorFit) -> Decimal:
    """Return the missing amount as a fraction of the need."""
    bound = verdict.capacity if verdict.fit is Fit.TOO_LARGE else verdict.free
    return max(Decimal(), verdict.need - bound) / verdict.need if verdict.need else Decimal()
