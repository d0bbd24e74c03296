"""Positions of queued runs in their queues: from Kueue's visibility API if it is served, else computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from launcher.k8s.client import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, Cluster
from launcher.k8s.errors import ClusterError, Forbidden, KindNotServed
from launcher.k8s.kueue import workloads as kueue_workloads
from launcher.k8s.kueue.queues import ClusterQueue, LocalQueue
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import Object, name, namespace
from launcher.k8s.shapes import PENDING, fault

# The maximum number of entries to request from a queue. The API's default is a thousand.
_MOST = "4000"


class Asks(Protocol):
    """The part of launcher.k8s.client.Cluster that calls the visibility API."""

    def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None) -> Any: ...


def pending(look: Asks, queue: str, namespace: str = "", local_queue: str = "") -> list[Object] | None:
    """Return the pending entries of a ClusterQueue in Kueue's order; only the LocalQueue's if RBAC hides the rest.

    Each has metadata, priority, and positionInClusterQueue from 0. Returns None if the API is not served, or is down.
    """
    paths = [f"clusterqueues/{queue}/pendingworkloads"]
    if local_queue:
        paths.append(f"namespaces/{namespace}/localqueues/{local_queue}/pendingworkloads")
    for version in kueue_workloads.VISIBILITY_VERSIONS:
        for path in paths:
            try:
                response = look.request(
                    "GET", f"/apis/{kueue_workloads.VISIBILITY_GROUP}/{version}/{path}", query={"limit": _MOST}
                )
            except Forbidden:
                continue
            except ClusterError:  # not served, or its server is down: the order can be computed
                break
            answer = response.json()
            items = answer.get("items") if isinstance(answer, dict) else None
            return [item for item in items if not fault(item, PENDING)] if isinstance(items, list) else []
    return None


def positions(
    cluster: Cluster, workloads: Iterable[Workload], everyone: Sequence[Workload] | None = None
) -> dict[str, int]:
    """Return the position of each queued Workload in its ClusterQueue, from 1, by its uid. Unknown ones are left out.

    `workloads` are of the cluster's namespace. If they are of all namespaces, `everyone` has all Workloads of these.
    """
    queued = [workload for workload in workloads if workload.is_queued]
    if not queued:
        return {}
    try:
        local_queues = list(map(LocalQueue, cluster.list(LOCAL_QUEUE, all_namespaces=everyone is not None)))
    except (KindNotServed, Forbidden):
        return {}
    targets = {(queue.namespace, queue.name): queue.cluster_queue for queue in local_queues}
    waiting: dict[str, dict[tuple[str, str], None]] = {}  # ClusterQueue -> the LocalQueues that submit to it
    for workload in queued:
        local = (workload.namespace, workload.local_queue)
        if targets.get(local):
            waiting.setdefault(targets[local], {})[local] = None
    by_uid: dict[str, int] = {}
    for queue, locals_ in waiting.items():
        places: dict[tuple[str, str], int] = {}
        for local in locals_:
            listed = pending(cluster, queue, *local)
            if listed is None:  # not available for one queue, so not for the others
                return _computed(cluster, queued, local_queues, everyone)
            places |= {
                (namespace(item), name(item)): int(item.get("positionInClusterQueue", place)) + 1
                for place, item in enumerate(listed)
            }
            if all(key in places for key in _keys(queued, targets, queue)):
                break  # every requested Workload of the ClusterQueue has a position
        by_uid |= {
            workload.uid: places[key] for workload in queued if (key := (workload.namespace, workload.name)) in places
        }
    return by_uid


def _keys(queued: Iterable[Workload], targets: Mapping[tuple[str, str], str], queue: str) -> list[tuple[str, str]]:
    """Return the namespace and name of the Workloads that wait in a ClusterQueue."""
    return [
        (workload.namespace, workload.name)
        for workload in queued
        if targets.get((workload.namespace, workload.local_queue)) == queue
    ]


def _computed(
    cluster: Cluster, queued: list[Workload], local_queues: list[LocalQueue], everyone: Sequence[Workload] | None
) -> dict[str, int]:
    """Compute the positions by Kueue's order, for queues whose pending Workloads are all visible.

    In other queues, Workloads that RBAC hides may be ahead.
    """
    try:
        cluster_queues = {queue.name: queue for queue in map(ClusterQueue, cluster.list(CLUSTER_QUEUE))}
    except (KindNotServed, Forbidden):
        return {}
    if everyone is None:
        without = [kueue_workloads.TEMPLATES]
        try:
            listed = cluster.list(WORKLOAD, all_namespaces=True, without=without)
            local_queues = list(map(LocalQueue, cluster.list(LOCAL_QUEUE, all_namespaces=True)))
        except Forbidden:
            listed = cluster.list(WORKLOAD, without=without)
        everyone = kueue_workloads.workloads(listed)
    own = {workload.uid for workload in queued}
    return {
        workload.uid: place
        for queue, waiting in kueue_workloads.queued_workloads(everyone, local_queues).items()
        if queue in cluster_queues
        and not cluster_queues[queue].ordered_by_usage
        and (cluster_queues[queue].pending or 0) <= len(waiting)
        for place, workload in enumerate(waiting, start=1)
        if workload.uid in own
    }
