"""A fake KubeRay: the pods and the status of RayClusters, and the clusters and the status of RayJobs. Only for tests of
the suite; see __init__.py. rayservice.py has the RayServices. Ray does not run; trainer.py decides when the job has
ended. Labels and states are those of recordings/rayjob-succeeds, and the conditions of a RayCluster those of KubeRay's
raycluster_controller.go (1.7)."""

from __future__ import annotations

import contextlib
import datetime
import secrets

from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.fake_controllers import Conditions, has_ended, is_owned, is_true, suspend
from tests.e2e.fakes.rayservice import RayServices
from tests.e2e.fakes.replicas import Replicas, with_own_port
from tests.e2e.fakes.trainer import Trainer

_JOB = {"apiVersion": "ray.io/v1", "kind": "RayJob"}
_CLUSTER = {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
_FINALIZER = "ray.io/rayjob-finalizer"
_QUEUE = "kueue.x-k8s.io/queue-name"


class KubeRay:
    """`step` does the next action for each RayJob, RayService and RayCluster."""

    def __init__(self, api: Api, trainer: Trainer, replicas: Replicas) -> None:
        self.api, self.trainer = api, trainer
        self._services = RayServices(api, replicas)
        self._begun: set[str] = set()

    def step(self) -> None:
        jobs = self.api.items("/apis/ray.io/v1/rayjobs")
        services = self.api.items("/apis/ray.io/v1/rayservices")
        clusters = [{**_CLUSTER, **found} for found in self.api.items("/apis/ray.io/v1/rayclusters")]
        for found in jobs:
            job = {**_JOB, **found}
            with contextlib.suppress(ApiError):  # deleted or changed in the meantime
                self._job(job, [c for c in clusters if is_owned(c, {found["metadata"]["uid"]})])
        for found in services:
            with contextlib.suppress(ApiError):
                self._services.reconcile(found, [c for c in clusters if is_owned(c, {found["metadata"]["uid"]})])
        for cluster in clusters:
            with contextlib.suppress(ApiError):
                self._reconcile(cluster)

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

    def _reconcile(self, cluster: Object) -> None:
        """Create and delete pods of the cluster, and write its status."""
        metadata, spec = cluster["metadata"], cluster["spec"]
        if "deletionTimestamp" in metadata:
            return
        pods = self._existing(cluster)
        wanted = [] if spec.get("suspend") else _pods(cluster)
        places = {_place(pod["metadata"]["labels"]) for pod in wanted}
        for pod in pods:
            if _place(pod["metadata"]["labels"]) not in places:
                self.api.delete(f"/api/v1/namespaces/{metadata['namespace']}/pods/{pod['metadata']['name']}")
        existing = {_place(pod["metadata"]["labels"]) for pod in pods}
        for pod in wanted:
            if _place(pod["metadata"]["labels"]) not in existing:
                self.api.create(pod)
        status = _status(cluster, pods, len(wanted))
        if any(cluster.get("status", {}).get(key) != value for key, value in status.items()):
            self.api.merge(f"{path_of(cluster)}/status", {"status": status})

    def _existing(self, cluster: Object) -> list[Object]:
        metadata = cluster["metadata"]
        selector = f"labelSelector=ray.io/cluster={metadata['name']}"
        pods = self.api.items(f"/api/v1/namespaces/{metadata['namespace']}/pods?{selector}")
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def _cluster(self, job: Object, cluster: Object) -> None:
        namespace = job["metadata"]["namespace"]
        pods = self._existing(cluster)
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


def _status(cluster: Object, pods: list[Object], wanted: int) -> Object:
    """The status of a RayCluster with these pods, of which there should be `wanted`."""
    ready = [pod for pod in pods if is_true(pod, "Ready")]
    heads = [pod for pod in ready if pod["metadata"]["labels"]["ray.io/node-type"] == "head"]
    all_ready = bool(wanted) and len(ready) == wanted
    conditions = Conditions(cluster)
    conditions.set(
        "HeadPodReady",
        *(("True", "HeadPodRunningAndReady", "") if heads else ("False", "HeadPodNotFound", "Head Pod not found")),
    )
    if all_ready:
        conditions.set("RayClusterProvisioned", "True", "AllPodRunningAndReadyFirstTime", "")
    elif conditions.status("RayClusterProvisioned") != "True" or not wanted:
        reason, message = "RayClusterPodsProvisioning", "RayCluster Pods are provisioning"
        conditions.set("RayClusterProvisioned", "False", reason, message)
    suspended = not wanted and not pods
    reason = "RayClusterSuspended" if suspended else "RayClusterNotSuspended"
    conditions.set("RayClusterSuspended", str(suspended), reason, "")
    state = {"state": "suspended"} if suspended else {"state": "ready"} if all_ready else {}
    return {
        **state,
        "conditions": conditions.all,
        "desiredWorkerReplicas": max(0, wanted - 1),
        "readyWorkerReplicas": len(ready) - len(heads),
        "head": {"serviceName": f"{cluster['metadata']['name']}-head-svc"},
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
    spec = template["spec"]
    if metadata.get("labels", {}).get("ray.io/originated-from-crd") == "RayService":
        # Only hosts get requests: charts/serve excludes the head.
        labels["ray.io/serve"] = "true" if kind == "worker" else "false"
        spec = with_own_port(spec)
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
        "spec": spec,
    }


def _place(labels: dict[str, str]) -> tuple[str, ...]:
    keys = ("ray.io/group", "ray.io/worker-group-replica-index", "ray.io/replica-host-index")
    return tuple(labels.get(key, "") for key in keys)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
