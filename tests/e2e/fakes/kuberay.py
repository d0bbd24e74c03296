"""A fake KubeRay: creates a RayJob's cluster and pods, and writes the job's status. Only for tests of the suite; see
__init__.py. Ray does not run; trainer.py decides when the job has ended. Labels and states are those of
recordings/rayjob-succeeds."""

from __future__ import annotations

import contextlib
import datetime
import secrets

from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.fake_controllers import has_ended, is_owned, suspend
from tests.e2e.fakes.trainer import Trainer

_JOB = {"apiVersion": "ray.io/v1", "kind": "RayJob"}
_CLUSTER = {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
_FINALIZER = "ray.io/rayjob-finalizer"
_QUEUE = "kueue.x-k8s.io/queue-name"


class KubeRay:
    """`step` does the next action for each RayJob and its RayCluster."""

    def __init__(self, api: Api, trainer: Trainer) -> None:
        self.api, self.trainer = api, trainer
        self._begun: set[str] = set()

    def step(self) -> None:
        jobs = self.api.items("/apis/ray.io/v1/rayjobs")
        clusters = self.api.items("/apis/ray.io/v1/rayclusters")
        for found in jobs:
            job = {**_JOB, **found}
            with contextlib.suppress(ApiError):  # deleted or changed in the meantime
                self._job(job, [{**_CLUSTER, **c} for c in clusters if is_owned(c, {found["metadata"]["uid"]})])

    def _job(self, job: Object, clusters: list[Object]) -> None:
        metadata, status = job["metadata"], job.get("status", {})
        if "deletionTimestamp" in metadata:
            self.api.merge(path_of(job), {"metadata": {"finalizers": None}})
        elif has_ended(job):
            for cluster in clusters:  # shutdownAfterJobFinishes
                self.api.delete(path_of(cluster))
        elif job["spec"].get("suspend"):
            self._begun.add(metadata["uid"])
            suspend(self.api, job)
        elif metadata["uid"] not in self._begun and _QUEUE in metadata.get("labels", {}):
            return  # Kueue has not suspended it yet
        elif not metadata.get("finalizers"):
            self.api.merge(path_of(job), {"metadata": {"finalizers": [_FINALIZER]}})
        elif not status.get("rayClusterName"):
            named = f"{metadata['name']}-{secrets.token_hex(3)[:5]}"
            self._set_status(
                job, rayClusterName=named, jobId=named, jobDeploymentStatus="Initializing", startTime=_now()
            )
        elif not clusters:
            self.api.create(_cluster(job))
        else:
            self._cluster(job, clusters[0])

    def _cluster(self, job: Object, cluster: Object) -> None:
        namespace = job["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=ray.io/cluster={cluster['metadata']['name']}"
        pods = [pod for pod in self.api.items(path) if "deletionTimestamp" not in pod["metadata"]]
        existing = {_place(pod["metadata"]["labels"]) for pod in pods}
        for wanted in _pods(cluster):
            if _place(wanted["metadata"]["labels"]) not in existing:
                self.api.create(wanted)
        ended = self.trainer.ended(namespace, job["metadata"]["name"], cluster["metadata"]["name"])
        if ended is not None:
            code, message = ended
            good = code == 0
            self._set_status(
                job,
                jobStatus="SUCCEEDED" if good else "FAILED",
                jobDeploymentStatus="Complete" if good else "Failed",
                message=message,
                endTime=_now(),
            )
        elif (
            job["status"].get("jobStatus") != "RUNNING"
            and len(pods) == len(_pods(cluster))
            and all(pod["status"].get("phase") == "Running" for pod in pods)
        ):
            self._set_status(
                job, jobStatus="RUNNING", jobDeploymentStatus="Running", message="Job is currently running."
            )

    def _set_status(self, job: Object, **status: str) -> None:
        self.api.merge(f"{path_of(job)}/status", {"status": status})


def _cluster(job: Object) -> Object:
    metadata = job["metadata"]
    labels = {
        _QUEUE: metadata.get("labels", {}).get(_QUEUE, ""),
        "ray.io/originated-from-cr-name": metadata["name"],
        "ray.io/originated-from-crd": "RayJob",
    }
    owner = {**_JOB, "name": metadata["name"], "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True}
    return {
        **_CLUSTER,
        "metadata": {
            "name": job["status"]["rayClusterName"],
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": job["spec"]["rayClusterSpec"],
    }


def _pods(cluster: Object) -> list[Object]:
    made = [_pod(cluster, "head", "headgroup", cluster["spec"]["headGroupSpec"]["template"], 0, 0)]
    for group in cluster["spec"]["workerGroupSpecs"]:
        for replica in range(group["replicas"]):
            for host in range(group.get("numOfHosts", 1)):
                made.append(_pod(cluster, "worker", group["groupName"], group["template"], replica, host))
    return made


def _pod(cluster: Object, kind: str, group: str, template: Object, replica: int, host: int) -> Object:
    metadata = cluster["metadata"]
    given = template.get("metadata", {})
    labels = {
        **given.get("labels", {}),
        "app.kubernetes.io/name": "kuberay",
        "ray.io/cluster": metadata["name"],
        "ray.io/group": group,
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": kind,
    }
    if kind == "worker":
        labels |= {"ray.io/worker-group-replica-index": str(replica), "ray.io/replica-host-index": str(host)}
    owner = {**_CLUSTER, "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-{kind}-{secrets.token_hex(3)[:5]}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": given.get("annotations", {}),
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        },
        "spec": template["spec"],
    }


def _place(labels: dict[str, str]) -> tuple[str, ...]:
    keys = ("ray.io/group", "ray.io/worker-group-replica-index", "ray.io/replica-host-index")
    return tuple(labels.get(key, "") for key in keys)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
