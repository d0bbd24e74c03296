"""The runs that use a release's queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from launcher.helm import diff
from launcher.helm.diff import ObjectChange
from launcher.k8s import label_keys, objects
from launcher.k8s.client import WORKLOAD
from launcher.k8s.kueue.workloads import TEMPLATES, Workload, workloads
from launcher.k8s.objects import Manifest

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster


def in_queues(cluster: Cluster, made: Sequence[Manifest]) -> list[str]:
    """Return the runs, as "namespace/name", that wait or run in the queues among the objects."""

    queues = {objects.name(obj) for obj in made if obj["kind"] == "ClusterQueue"}
    local = {(objects.namespace(obj), objects.name(obj)) for obj in made if obj["kind"] == "LocalQueue"}
    if not queues and not local:
        return []
    runs = [
        _run(workload)
        for workload in _unfinished(cluster)
        if workload.cluster_queue in queues or (workload.namespace, workload.local_queue) in local
    ]
    return sorted(runs)


@dataclass(frozen=True)
class QueueUsers:
    """The runs, as "namespace/name", that use what a change of the queues removes.

    `losing` has the reason for each run that loses its queue, or that no quota counts any more. `retired` has the runs
    that hold a flavor of earlier values, by flavor: it stays in the queue with quota 0 until they end.
    """

    losing: Mapping[str, str] = field(default_factory=dict)
    retired: Mapping[str, Sequence[str]] = field(default_factory=dict)


def of_change(cluster: Cluster, rendered: Sequence[Manifest], changes: Sequence[ObjectChange]) -> QueueUsers:
    """Return the runs that use the queues and flavors that these changes remove."""
    named = {(change.kind, change.namespace, change.name): change.action for change in changes}
    gone = {key for key, action in named.items() if action == diff.REMOVE}
    lost: dict[str, set[str]] = {}  # the flavors that a ClusterQueue loses
    for obj in rendered:
        if obj["kind"] == "ClusterQueue" and named.get(("ClusterQueue", "", objects.name(obj))) == diff.CHANGE:
            lost[objects.name(obj)] = _flavors(diff.live_object(cluster, obj) or {}) - _flavors(obj)
    retired = {
        objects.name(obj)
        for obj in rendered
        if obj["kind"] == "ResourceFlavor" and objects.label(obj, label_keys.RETIRED)
    }
    if not retired and not any(lost.values()) and not {kind for kind, *_ in gone} & {"ClusterQueue", "LocalQueue"}:
        return QueueUsers()
    losing: dict[str, str] = {}
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for workload in _unfinished(cluster):
        queue, held = workload.cluster_queue, {flavor for flavor, _ in workload.holds}
        if ("LocalQueue", workload.namespace, workload.local_queue) in gone:
            losing[_run(workload)] = f"its queue {workload.local_queue} is removed"
        elif ("ClusterQueue", "", queue) in gone:
            losing[_run(workload)] = f"its ClusterQueue {queue} is removed"
        elif flavors := held & lost.get(queue, set()):
            losing[_run(workload)] = f"the ClusterQueue {queue} no longer counts its flavor {sorted(flavors)[0]}"
        for flavor in held & retired:
            holders[flavor].append(_run(workload))
    return QueueUsers(dict(sorted(losing.items())), {name: sorted(holders[name]) for name in sorted(holders)})


def _unfinished(cluster: Cluster) -> Iterable[Workload]:
    """Yield the Workloads of the cluster that wait or run. A cancelled one no longer needs a queue."""
    for workload in workloads(cluster.list(WORKLOAD, all_namespaces=True, without=[TEMPLATES])):
        if not workload.is_true("Finished") and (workload.active or workload.has_quota):
            yield workload


def _run(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.owner}"


def _flavors(queue: Mapping[str, Any]) -> set[str]:
    groups = (queue.get("spec") or {}).get("resourceGroups") or ()
    return {str(flavor["name"]) for group in groups for flavor in group.get("flavors") or ()}
