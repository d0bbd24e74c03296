"""Long-lived RayClusters, from their Kubernetes objects: the list, and their status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from launcher.errors import LauncherError
from launcher.formatting import table
from launcher.k8s import label_keys, objects
from launcher.k8s.client import POD, RAY_CLUSTER, Cluster, KindNotServed
from launcher.k8s.objects import Object
from launcher.k8s.pods import Pod
from launcher.products.common.ray_hosts import Group, Host, groups_of, host


@dataclass(frozen=True)
class RayClusterStatus:
    """The current status of a long-lived RayCluster. Scripts read its fields as JSON: add fields, never rename them.

    `state` is suspended, starting, ready or failed (ready: the head answers; hosts may still be missing).
    `hosts` of `hosts_wanted` workers are ready. `runs` are the active runs, or None if Ray was not queried or did not
    answer.
    """

    name: str
    namespace: str
    state: str
    reason: str
    ray_version: str
    hosts: int
    hosts_wanted: int
    chips: int
    since: str
    groups: tuple[Group, ...] = ()
    pods: tuple[Host, ...] = ()
    runs: tuple[str, ...] | None = None


# --- finding ----------------------------------------------------------------------------------------------------


def all_clusters(cluster: Cluster, *, all_namespaces: bool = False) -> list[Object]:
    """Return the RayClusters of the namespace, or of all, without those of RayJobs and RayServices.

    Returns [] if the cluster has no KubeRay.
    """
    try:
        ray_objects = cluster.list(RAY_CLUSTER, all_namespaces=all_namespaces)
    except KindNotServed:
        return []
    return [
        each
        for each in ray_objects
        if not objects.label(each, label_keys.RAY_ORIGIN)
        and not any(owner.get("kind") in ("RayJob", "RayService") for owner in _owners(each))
    ]


def named(cluster: Cluster, name: str) -> Object:
    """Return the RayCluster with that name. Raises LauncherError with the existing names if it does not exist."""
    obj = cluster.get(RAY_CLUSTER, name)
    if obj is not None:
        return obj
    names = [objects.name(each) for each in all_clusters(cluster)]
    near = get_close_matches(name, names, n=1)
    guess = f' Did you mean "{near[0]}"?' if near else f" Existing Ray clusters: {', '.join(names)}." if names else ""
    raise LauncherError(
        f'The Ray cluster "{name}" was not found in the {cluster.description}.{guess}',
        f"Correct run.cluster, or create the Ray cluster: "
        f"launcher install ray-cluster {name}{cluster.cli_args} -f FILE",
    )


# --- showing ----------------------------------------------------------------------------------------------------


def describe(cluster: Cluster, ray_cluster: Object, *, runs: Sequence[str] | None = None) -> RayClusterStatus:
    """Return the cluster's status with its pods. `runs` are the names of its active runs, if known."""
    name, status = objects.name(ray_cluster), objects.status(ray_cluster)
    state, reason = state_of(ray_cluster)
    pods = cluster.list(POD, objects.namespace(ray_cluster), labels=f"{label_keys.RAY_CLUSTER}={name}")
    hosts = sorted(map(host, map(Pod, pods)), key=lambda pod: (pod.group != "head", pod.group, pod.pod))
    workers = [pod for pod in hosts if pod.group != "head"]
    return RayClusterStatus(
        name=name,
        namespace=objects.namespace(ray_cluster),
        state=state,
        reason=reason,
        ray_version=str(ray_cluster["spec"].get("rayVersion") or ""),
        hosts=sum(pod.ready for pod in workers),
        hosts_wanted=int(status.get("desiredWorkerReplicas") or 0),
        chips=sum(pod.chips for pod in workers if pod.ready),
        since=str(ray_cluster["metadata"].get("creationTimestamp") or ""),
        groups=tuple(groups_of(ray_cluster)),
        pods=tuple(hosts),
        runs=None if runs is None else tuple(runs),
    )


def listing(clusters: Sequence[RayClusterStatus]) -> str:
    """Return the table of `launcher list`; "" if there are no clusters."""
    if not clusters:
        return ""
    rows = [("RAY CLUSTER", "STATE", "HOSTS", "CHIPS", "RAY", "SINCE", "RUNS")]
    for status in clusters:
        runs = "?" if status.runs is None else ", ".join(status.runs)
        hosts = f"{status.hosts}/{status.hosts_wanted}"
        rows.append((status.name, status.state, hosts, str(status.chips or ""), status.ray_version, status.since, runs))
    return table(rows)


def details(status: RayClusterStatus) -> str:
    """Return the text of `launcher status` for a long-lived Ray cluster: its status, and its pods with their nodes."""
    rows = [
        ("cluster", f"{status.name} (namespace {status.namespace})"),
        ("state", f"{status.state}: {status.reason}" if status.reason else status.state),
        ("Ray", status.ray_version),
        ("since", status.since),
        ("hosts", f"{status.hosts} of {status.hosts_wanted} ready"),
        *(("group", f"{group.name}: {group.as_text()}") for group in status.groups),
    ]
    if status.runs is not None:
        rows.append(("runs", ", ".join(status.runs) or "none"))
    text = table([row for row in rows if row[1]], headed=False)
    if status.pods:
        nodes = [("POD", "GROUP", "NODE", "READY", "CHIPS")]
        nodes += [pod.as_row() for pod in status.pods]
        text += "\n\n" + table(nodes)
    return text


def state_of(ray_cluster: Object) -> tuple[str, str]:
    """Return the state and reason; see RayClusterStatus."""
    status = objects.status(ray_cluster)
    if ray_cluster["spec"].get("suspend") or objects.is_true(ray_cluster, "RayClusterSuspended"):
        queue = objects.label(ray_cluster, label_keys.KUEUE_QUEUE)
        return "suspended", f"it waits in the queue {queue}" if queue else "spec.suspend is set"
    failure = objects.condition(ray_cluster, "ReplicaFailure")
    if failure.is_true:
        return "failed", (failure.message or failure.reason).rstrip(".")
    head = objects.condition(ray_cluster, "HeadPodReady")
    if head.is_true or (not head and status.get("state") == "ready"):
        return "ready", ""
    return "starting", (head.message or head.reason or "its head has no pod yet").rstrip(".")


def _owners(obj: Object) -> Sequence[Object]:
    return obj["metadata"].get("ownerReferences") or []
