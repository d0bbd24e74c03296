"""Read the runs of a cluster: Workloads, events and quota. For objects that RBAC hides there is a mark, no error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from launcher.config.accelerators import CHIPS
from launcher.errors import LauncherError
from launcher.k8s.client import CLUSTER_QUEUE, COHORT, EVENT, LOCAL_QUEUE, RESOURCE_FLAVOR, WORKLOAD, Cluster, Kind
from launcher.k8s.errors import Forbidden, KindNotServed
from launcher.k8s.kueue.queues import ClusterQueue, Cohort, LocalQueue, QuotaOwner, ResourceFlavor
from launcher.k8s.kueue.workloads import TEMPLATES, Workload
from launcher.k8s.objects import Object
from launcher.products.common import clock
from launcher.products.fleet.model import FleetRun
from launcher.products.fleet.workloads import UNKNOWN_FLAVOR, fleet_runs
from launcher.products.planner.simulation.cluster_state import all_or_own
from launcher.products.planner.simulation.platform import SliceFlavor, flavor_of

_PARALLEL = 5


@dataclass(frozen=True)
class ClusterRuns:
    """The runs that the API server has at the time `now`, the chips of each flavor by quota, and the flavors.

    `namespace` is the only one whose runs are visible, or "" if all are.
    """

    now: float
    runs: Sequence[FleetRun]
    quotas: Mapping[str, int]
    flavors: Mapping[str, SliceFlavor]
    namespace: str
    marks: Sequence[str]


def read_cluster(cluster: Cluster, common: Mapping[str, Any]) -> ClusterRuns:
    """Return the runs of the cluster; those of the namespace if the others are hidden.

    `common` has the tables of accelerators and prices. Raises LauncherError if the cluster has no Kueue.
    """
    marks: list[str] = []
    with ThreadPoolExecutor(_PARALLEL) as pool:
        of_workloads = pool.submit(all_or_own, cluster, WORKLOAD, without=(f"{TEMPLATES}.metadata",))
        of_events = pool.submit(_events, cluster)
        of_local = pool.submit(all_or_own, cluster, LOCAL_QUEUE)
        kinds = CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR
        queues, cohorts, flavors = pool.map(lambda kind: _visible(cluster, kind, marks), kinds)
    try:
        (workloads, everywhere), (local_queues, _) = of_workloads.result(), of_local.result()
    except KindNotServed as error:
        raise LauncherError(
            f"{cluster.name[:1].upper()}{cluster.name[1:]} has no Kueue, so no run waits or holds quota.",
            "launcher doctor shows what the cluster has.",
        ) from error
    if not everywhere:
        marks.append(f"You may list only runs of {cluster.namespace}: those of others are missing, and count as idle.")
    marks += [f"{sentence} It is left out." for sentence in sorted(cluster.unreadable)]
    time, skew = clock.of_cluster(cluster)
    marks += [skew] if skew else []
    now = time.timestamp()
    cluster_queues = [ClusterQueue(obj) for obj in queues]
    runs = fleet_runs(map(Workload, workloads), of_events.result(), map(LocalQueue, local_queues), now)
    sole = _sole_flavors(cluster_queues)
    return ClusterRuns(
        now,
        [_with_flavor(run, sole) for run in runs],
        quotas_of([*cluster_queues, *(Cohort(obj) for obj in cohorts)]),
        {
            flavor.name: flavor_of(flavor, common["accelerators"], common.get("prices") or {})
            for flavor in map(ResourceFlavor, flavors)
        },
        "" if everywhere else cluster.namespace,
        marks,
    )


def quotas_of(owners: Sequence[QuotaOwner]) -> dict[str, int]:
    """Return the chips of each flavor that the queues and cohorts have as nominal quota."""
    quotas: defaultdict[str, int] = defaultdict(int)
    for owner in owners:
        for (flavor, resource), quota in owner.quotas.items():
            if resource in CHIPS:
                quotas[flavor] += int(quota.nominal)
    return dict(quotas)


def _sole_flavors(queues: Sequence[ClusterQueue]) -> dict[str, str]:
    """Return the flavor of each queue that has quota for chips in only one."""
    flavors = {queue.name: {flavor for flavor, resource in queue.quotas if resource in CHIPS} for queue in queues}
    return {queue: next(iter(names)) for queue, names in flavors.items() if len(names) == 1}


def _with_flavor(run: FleetRun, sole: Mapping[str, str]) -> FleetRun:
    """Return the run with the only flavor that its queue has, if it has no flavor now."""
    if UNKNOWN_FLAVOR not in run.chips or run.queue not in sole:
        return run
    chips = dict(run.chips)
    flavor, count = sole[run.queue], chips.pop(UNKNOWN_FLAVOR)
    return replace(run, chips={**chips, flavor: chips.get(flavor, 0) + count})


def _events(cluster: Cluster) -> list[Object]:
    """Return the events of Workloads; none if they are hidden: the sum of earlier attempts is then known."""
    selected = "involvedObject.kind=Workload"
    try:
        return list(cluster.list(EVENT, all_namespaces=True, fields=selected))
    except Forbidden:
        try:
            return list(cluster.list(EVENT, fields=selected))
        except Forbidden:
            return []


def _visible(cluster: Cluster, kind: Kind, marks: list[str]) -> list[Object]:
    """Return the objects of a kind without a namespace. If the user may not list them, add a mark."""
    try:
        return list(cluster.list(kind))
    except Forbidden:
        marks.append(f"You may not list {kind.kind}s: quota, idle chips and prices by flavor are incomplete.")
    except KindNotServed:  # an older Kueue has no Cohort; without Kueue the Workloads raise this, too
        pass
    return []
