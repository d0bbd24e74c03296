"""The runs that use a release's queues or its Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from launcher.backends.ray_cluster.jobs import ENDED, RayHead, RayJobs
from launcher.errors import LauncherError
from launcher.k8s import objects
from launcher.k8s.client import RAY_CLUSTER, WORKLOAD
from launcher.k8s.kueue.workloads import TEMPLATES, workloads
from launcher.k8s.label_keys import RUN
from launcher.k8s.objects import Manifest

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster


def in_queues(cluster: Cluster, made: Sequence[Manifest]) -> list[str]:
    """Return the runs, as "namespace/name", that wait or run in the queues among the objects."""

    queues = {objects.name(obj) for obj in made if obj["kind"] == "ClusterQueue"}
    local = {(objects.namespace(obj), objects.name(obj)) for obj in made if obj["kind"] == "LocalQueue"}
    if not queues and not local:
        return []
    found = []
    for workload in workloads(cluster.list(WORKLOAD, all_namespaces=True, without=[TEMPLATES])):
        waits = (workload.namespace, workload.local_queue) in local
        if not workload.active and not workload.has_quota:
            continue  # cancelled: it no longer needs a queue
        if (workload.cluster_queue in queues or waits) and not workload.is_true("Finished"):
            found.append(f"{workload.namespace}/{workload.owner}")
    return sorted(found)


def in_ray_clusters(cluster: Cluster, made: Sequence[Manifest]) -> tuple[list[str], list[str]]:
    """Return the active jobs in the Ray clusters among the objects, and a sentence for each unreachable cluster.

    The jobs are the launcher's and others, as "namespace/name".
    """
    found: list[str] = []
    unseen: list[str] = []
    for obj in made:
        if obj["kind"] != "RayCluster":
            continue
        try:
            found += _jobs_in(cluster, obj)
        except LauncherError as error:
            unseen.append(f"The jobs in the Ray cluster {objects.name(obj)} cannot be listed: {error.message}")
    return sorted(found), unseen


def _jobs_in(cluster: Cluster, obj: Manifest) -> list[str]:

    namespace = objects.namespace(obj) or cluster.namespace
    there = cluster.get(RAY_CLUSTER, objects.name(obj), namespace)
    if there is None or not objects.is_true(there, "RayClusterProvisioned"):
        return []  # its head has never accepted a job
    jobs = RayJobs(RayHead(cluster, there, named=True)).list()
    names = [
        str((job.get("metadata") or {}).get(RUN) or job["submission_id"]) for job in jobs if job["status"] not in ENDED
    ]
    return [f"{namespace}/{name}" for name in names]
