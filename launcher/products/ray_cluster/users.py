"""The jobs that end if the Ray clusters of a release are removed."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.errors import LauncherError
from launcher.k8s import objects
from launcher.k8s.client import RAY_CLUSTER, Cluster
from launcher.k8s.label_keys import RUN
from launcher.k8s.objects import Manifest
from launcher.products.ray_cluster.jobs import ENDED, RayHead, RayJobs


def active_jobs(cluster: Cluster, made: Sequence[Manifest]) -> tuple[list[str], list[str]]:
    """Return the active jobs in the Ray clusters among the objects, and a sentence for each unreachable cluster.

    The jobs are the launcher's and others, as "namespace/name".
    """
    jobs: list[str] = []
    unseen: list[str] = []
    for obj in made:
        if obj["kind"] != "RayCluster":
            continue
        try:
            jobs += _jobs_in(cluster, obj)
        except LauncherError as error:
            unseen.append(f"The jobs in the Ray cluster {objects.name(obj)} cannot be listed: {error.message}")
    return sorted(jobs), unseen


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
