"""Positions of queued runs in their queues: from Kueue's visibility API if it is served, else computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from launcher.k8s.client import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, Cluster
from launcher.k8s.errors import ClusterError, Forbidden, KindNotServed
from launcher.k8s.kueue import workloads as kueue
from launcher.k8s.objects import Object, name, namespace, status, uid
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
    for version in kueue.VISIBILITY_VERSIONS:
        for path in paths:
            try:
                response = look.request(
                    "GET", f"/apis/{kueue.VISIBILITY_GROUP}/{version}/{path}", query={"limit": _MOST}
                )
            except Forbidden:
                continue
            except ClusterError:  # not served, or its server is down: the order can be computed
                break
            answer = response.json()
            items = answer.get("items") if isinstance(answer, dict) else None
            return [item for item in items if not fault(item, PENDING)] if isinstance(items, list) else []
    return None


def positions(cluster: Cluster, workloads: Iterable[Object], *, all_namespaces: bool = False) -> dict[str, int]:
    """Return the position of each queued Workload in its ClusterQueue, from 1, by its uid. Unknown ones are left out.

    `workloads` are some or all Workloads of the namespace, or of all namespaces (`all_namespaces`).
    """
    queued = [workload for workload in workloads if kueue.is_queued(workload)]
    if not queued:
        return {}
    try:
        local_queues = cluster.list(LOCAL_QUEUE, all_namespaces=all_namespaces)
    except (KindNotServed, Forbidden):
        return {}
    targets = {(namespace(queue), name(queue)): kueue.cluster_queue_of(queue) for queue in local_queues}
    waiting: dict[str, dict[tuple[str, str], None]] = {}  # ClusterQueue -> the LocalQueues that submit to it
    for workload in queued:
        local = (namespace(workload), kueue.local_queue_of(workload))
        if targets.get(local):
            waiting.setdefault(targets[local], {})[local] = None
    found: dict[str, int] = {}
    for queue, locals_ in waiting.items():
        places: dict[tuple[str, str], int] = {}
        for local in locals_:
            listed = pending(cluster, queue, *local)
            if listed is None:  # not available for one queue, so not for the others
                return _computed(cluster, queued, local_queues)
            places |= {
                (namespace(item), name(item)): int(item.get("positionInClusterQueue", place)) + 1
                for place, item in enumerate(listed)
            }
            if all(key in places for key in _keys(queued, targets, queue)):
                break  # every requested Workload of the ClusterQueue has a position
        found |= {
            uid(workload): places[key]
            for workload in queued
            if (key := (namespace(workload), name(workload))) in places
        }
    return found


def _keys(queued: Iterable[Object], targets: Mapping[tuple[str, str], str], queue: str) -> list[tuple[str, str]]:
    """Return the namespace and name of the Workloads that wait in a ClusterQueue."""
    return [
        (namespace(workload), name(workload))
        for workload in queued
        if targets.get((namespace(workload), kueue.local_queue_of(workload))) == queue
    ]


def _computed(cluster: Cluster, queued: list[Object], local_queues: list[Any]) -> dict[str, int]:
    """Compute the positions by Kueue's order, for queues whose pending Workloads are all visible.

    In other queues, Workloads that RBAC hides may be ahead.
    """
    try:
        cluster_queues = {name(queue): queue for queue in cluster.list(CLUSTER_QUEUE)}
    except (KindNotServed, Forbidden):
        return {}
    try:
        everyone = cluster.list(WORKLOAD, all_namespaces=True)
        local_queues = cluster.list(LOCAL_QUEUE, all_namespaces=True)
    except Forbidden:
        everyone = cluster.list(WORKLOAD)
    own = {uid(workload) for workload in queued}
    return {
        uid(workload): place
        for queue, waiting in kueue.queued_workloads(everyone, local_queues).items()
        if queue in cluster_queues
        and not kueue.ordered_by_usage(cluster_queues[queue])
        and int(status(cluster_queues[queue]).get("pendingWorkloads") or 0) <= len(waiting)
        for place, workload in enumerate(waiting, start=1)
        if uid(workload) in own
    }
