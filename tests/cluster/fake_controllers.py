"""A live fake of what Kueue, KubeRay and JobSet do when a run is stopped.

It is necessary because a recording cannot react when a test cancels a run, and upstream's controllers are not available
where the tests run. It covers only the stop of a run, and writes what the real controllers write: Kueue 0.19's eviction
by deactivation (the conditions of pkg/workload, in its order: Evicted, then the job is suspended, then the quota is
released), and the reaction of KubeRay and JobSet to spec.suspend, as in recordings/preempted-by-priority. replay.py
covers everything else.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator

from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.control_loop import control_loop
from tests.cluster.control_plane import ControlPlane

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
RUNS = {
    "RayJob": "/apis/ray.io/v1/namespaces/{}/rayjobs",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
}
KIND = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
DEACTIVATED = "The workload is deactivated"


def queued_workload(run: Object, queue: str) -> Object:
    """Return the Workload that Kueue creates for the run, before its first condition."""
    metadata = run["metadata"]
    owner = {"apiVersion": run["apiVersion"], "kind": run["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    pods = {"spec": {"containers": [{"name": "trainer", "image": "example.invalid/trainer:1"}]}}
    return {
        **KIND,
        "metadata": {
            "name": f"of-{metadata['name']}",
            "namespace": metadata["namespace"],
            "labels": {"kueue.x-k8s.io/job-uid": metadata["uid"]},
            "ownerReferences": [owner],
        },
        "spec": {"queueName": queue, "podSets": [{"name": "slice", "count": 2, "template": pods}]},
    }


@contextlib.contextmanager
def controllers(plane: ControlPlane, *namespaces: str, every: float = 0.1) -> Iterator[None]:
    """While this is open, runs in `namespaces` that are deactivated or suspended stop as with the real controllers."""
    with contextlib.closing(Api(plane.admin)) as api:

        def step() -> bool:
            done = [_step(api, namespace) for namespace in namespaces]
            return not all(done)

        with control_loop(step, every=every, revision=plane.revision, name="controllers"):
            yield


def _step(api: Api, namespace: str) -> bool:
    """Do the next step for all runs of the namespace. Returns False if one was changed in the meantime."""
    try:
        for workload in api.items(f"{KUEUE}/namespaces/{namespace}/workloads"):
            if "deletionTimestamp" in workload["metadata"]:
                # Its run is deleted, so Kueue removes its finalizer.
                api.merge(path_of({**KIND, **workload}), {"metadata": {"finalizers": None}})
            elif workload["spec"].get("active") is False and not is_true(workload, "Finished"):
                _evict(api, workload)
        for path in RUNS.values():
            for run in api.items(path.format(namespace)):
                if run["spec"].get("suspend") and not has_ended(run):
                    suspend(api, run)
    except ApiError as error:
        if error.status not in (404, 409):  # deleted or changed in the meantime
            raise
        return False
    return True


def _evict(api: Api, workload: Object) -> None:
    """Do the next step of Kueue's eviction."""
    conditions = Conditions(workload)
    if not is_true(workload, "Evicted"):
        conditions.set("Evicted", "True", "Deactivated", DEACTIVATED)
        api.merge(f"{path_of(workload)}/status", {"status": {"conditions": conditions.all, "requeueState": None}})
        return
    owner = workload["metadata"]["ownerReferences"][0]
    path = f"{RUNS[owner['kind']].format(workload['metadata']['namespace'])}/{owner['name']}"
    run = api.get(path)
    if run["metadata"]["uid"] != owner["uid"]:
        return  # the next attempt already has its name
    if not run["spec"].get("suspend"):
        api.merge(path, {"spec": {"suspend": True}})
    elif is_suspended(run) and {conditions.status("QuotaReserved"), conditions.status("Requeued")} != {"False"}:
        conditions.set("Requeued", "False", "Deactivated", DEACTIVATED)
        conditions.set("QuotaReserved", "False", "Pending", DEACTIVATED)
        if conditions.status("Admitted"):
            conditions.set("Admitted", "False", "NoReservation", "The workload has no reservation")
        api.merge(f"{path_of(workload)}/status", {"status": {"conditions": conditions.all, "admission": None}})


def suspend(api: Api, run: Object) -> None:
    """Do the next step of KubeRay's or JobSet's suspension: first delete the pods, then write the status.

    The run is read again after its objects were listed, so that pods of a run that was resumed in the meantime are not
    deleted.
    """
    kind, namespace = run["kind"], run["metadata"]["namespace"]
    path = f"{RUNS[kind].format(namespace)}/{run['metadata']['name']}"
    jobs = api.items(f"/apis/batch/v1/namespaces/{namespace}/jobs") if kind == "JobSet" else []
    clusters = api.items(f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters") if kind == "RayJob" else []
    pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
    uid = run["metadata"]["uid"]
    run = {"kind": kind, **api.get(path)}
    if run["metadata"]["uid"] != uid or not run["spec"].get("suspend"):
        return
    owners = {uid}
    for job in jobs:
        if is_owned(job, owners):
            owners.add(job["metadata"]["uid"])
            if not job["spec"].get("suspend"):
                api.merge(path_of({"apiVersion": "batch/v1", "kind": "Job", **job}), {"spec": {"suspend": True}})
    for cluster in clusters:
        if is_owned(cluster, owners):
            owners.add(cluster["metadata"]["uid"])
            api.delete(path_of(cluster))
    pods = [pod for pod in pods if is_owned(pod, owners) or _belongs(pod, run)]
    for pod in pods:
        where = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
        if pod["metadata"].get("finalizers"):
            api.merge(where, {"metadata": {"finalizers": None}})
        # The first step requests the pod's end, the next one removes it, because no kubelet reports its end.
        api.delete(where, grace=0 if "deletionTimestamp" in pod["metadata"] else None)
    if pods or is_suspended(run):
        return
    if kind == "JobSet":
        conditions = Conditions(run)
        conditions.set("Suspended", "True", "SuspendedJobs", "jobset is suspended")
        status: Object = {"conditions": conditions.all}
    else:
        empty = ("rayClusterName", "dashboardURL", "jobId", "jobStatus", "message")
        status = {"jobDeploymentStatus": "Suspended", **{key: None for key in empty if key in run.get("status", {})}}
    # The resourceVersion prevents that a status is overwritten that was written in the meantime.
    version = {"resourceVersion": run["metadata"]["resourceVersion"]}
    api.merge(f"{path}/status", {"metadata": version, "status": status})


class Conditions:
    """An object's conditions. Change them one by one, and write `all` back."""

    def __init__(self, obj: Object) -> None:
        self.all: list[Object] = [dict(condition) for condition in obj.get("status", {}).get("conditions", ())]
        self._generation = obj["metadata"].get("generation", 1)

    def status(self, kind: str) -> str:
        return next((str(condition["status"]) for condition in self.all if condition["type"] == kind), "")

    def set(self, kind: str, status: str, reason: str, message: str) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        made = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
        made["observedGeneration"] = self._generation
        for number, old in enumerate(self.all):
            if old["type"] == kind:
                if old["status"] == status:
                    made["lastTransitionTime"] = old["lastTransitionTime"]
                self.all[number] = made
                return
        self.all.append(made)


def is_true(obj: Object, kind: str) -> bool:
    return Conditions(obj).status(kind) == "True"


def is_suspended(run: Object) -> bool:
    if run["kind"] == "JobSet":
        return is_true(run, "Suspended")
    return bool(run.get("status", {}).get("jobDeploymentStatus") == "Suspended")


def has_ended(run: Object) -> bool:
    if run["kind"] == "JobSet":
        return is_true(run, "Completed") or is_true(run, "Failed")
    return run.get("status", {}).get("jobDeploymentStatus") in ("Complete", "Failed")


def is_owned(obj: Object, uids: set[str]) -> bool:
    return any(owner["uid"] in uids for owner in obj["metadata"].get("ownerReferences", ()))


def _belongs(pod: Object, run: Object) -> bool:
    """Whether a pod belongs to this run, by its labels, because its RayCluster can already be deleted."""
    labels = pod["metadata"].get("labels", {})
    if run["kind"] == "JobSet":
        return bool(labels.get("jobset.sigs.k8s.io/jobset-name") == run["metadata"]["name"])
    cluster = run.get("status", {}).get("rayClusterName")
    return bool(cluster and labels.get("ray.io/cluster") == cluster)
