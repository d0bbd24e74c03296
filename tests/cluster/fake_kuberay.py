"""A stand-in for KubeRay's controller of RayServices: it writes the statuses that the controller would write.

The real controller is not available where the tests run: it needs nodes that pull an image with Ray, and its own image.
The statuses follow calculateStatus and calculateConditions of its rayservice_controller.go (KubeRay 1.5 to 1.7): the
reasons and messages of the conditions, the active and the pending RayCluster, the states of Ray Serve. They are written
to a real API server with upstream's CRD, which drops a field that the CRD does not have, so `write` compares.
"""

from __future__ import annotations

from typing import Any

from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane

RAY = "/apis/ray.io/v1/namespaces"
NOW = "2026-11-21T06:24:38Z"
INITIALIZING = ("Initializing", "RayService is initializing")


def condition(kind: str, status: str, reason: str, message: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


def part(cluster: str, *, application: str = "", message: str = "", provisioned: bool = True, **more: Any) -> Object:
    """Return the status of the active or the pending service: the RayCluster, and the state of the application."""
    conditions = [
        condition("HeadPodReady", "True", "HeadPodRunningAndReady", ""),
        condition("RayClusterProvisioned", "True", "AllPodRunningAndReadyFirstTime", ""),
    ]
    if not provisioned:
        conditions = [
            condition("HeadPodReady", "False", "ContainersNotReady", "containers with unready status: [ray-head]"),
            condition(
                "RayClusterProvisioned", "False", "RayClusterPodsProvisioning", "RayCluster Pods are provisioning"
            ),
        ]
    made: Object = {"rayClusterName": cluster, "rayClusterStatus": {"conditions": conditions}, **more}
    if application:
        deployment = {"status": "UNHEALTHY" if message else "HEALTHY", "message": message}
        made["applicationStatuses"] = {
            "model": {"status": application, "message": message, "serveDeploymentStatuses": {"Model": deployment}}
        }
    return made


def status(
    *,
    active: Object | None = None,
    pending: Object | None = None,
    endpoints: int = 0,
    ready: tuple[str, str, str] | None = None,
    generation: int = 1,
) -> Object:
    """Return the status of a RayService. `ready`: the condition Ready, if it does not follow from the endpoints."""
    if ready is None:
        text = "Number of serve endpoints is greater than 0"
        ready = ("True", "NonZeroServeEndpoints", text) if endpoints else ("False", *INITIALIZING)
    if active and pending:
        upgrade = ("True", "BothActivePendingClustersExist", "Both active and pending Ray clusters exist")
    elif active:
        upgrade = ("False", "NoPendingCluster", "Active Ray cluster exists and no pending Ray cluster")
    else:
        upgrade = ("False", *INITIALIZING)
    return {
        "conditions": [condition("Ready", *ready), condition("UpgradeInProgress", *upgrade)],
        "serviceStatus": "Running" if ready[0] == "True" else "",
        "numServeEndpoints": endpoints,
        "observedGeneration": generation,
        "activeServiceStatus": active or {},
        "pendingServiceStatus": pending or {},
    }


LOADING = status(pending=part("llama-1"))
READY = status(active=part("llama-1", application="RUNNING"), endpoints=1)
TRACEBACK = (
    "Deploying app 'model' failed with exception:\nTraceback (most recent call last):\n  File \"/app.py\", line 1\n"
    "ValueError: /data/exports/llama3.1-8b has no config.json."
)
DEPLOY_FAILED = status(pending=part("llama-1", application="DEPLOY_FAILED", message=TRACEBACK))
UNHEALTHY = status(
    active=part("llama-1", application="UNHEALTHY", message="The deployments ['Model'] are UNHEALTHY."), endpoints=1
)
STOPPED = status(
    active=part("llama-1", application="RUNNING"),
    ready=("False", "ZeroServeEndpoints", "Number of serve endpoints dropped to 0"),
)
UPDATING = status(
    active=part("llama-1", application="RUNNING"), pending=part("llama-2", provisioned=False), endpoints=1
)
INCREMENTAL = status(
    active=part("llama-1", application="RUNNING", trafficRoutedPercent=75, targetCapacity=100),
    pending=part("llama-2", application="RUNNING", trafficRoutedPercent=25, targetCapacity=50),
    endpoints=2,
)
UPDATE_FAILED = status(
    active=part("llama-1", application="RUNNING"),
    pending=part("llama-2", application="DEPLOY_FAILED", message=TRACEBACK),
    endpoints=1,
)
REJECTED = status(ready=("False", "ValidationFailed", "spec.serveConfigV2 is not valid"), generation=0)
TIMED_OUT = status(ready=("False", "InitializingTimeout", "RayService failed to become ready within 1800s"))


def write(api: Api, namespace: str, name: str, new: Object) -> Object:
    """Replace the status of a RayService, for its current generation, unless the controller has not observed it."""
    path = f"{RAY}/{namespace}/rayservices/{name}"
    live: Object = api.get(path)
    wanted = {**new, "observedGeneration": new["observedGeneration"] and live["metadata"]["generation"]}
    kept = api.request("PUT", f"{path}/status", {**live, "status": wanted})
    assert kept["status"] == wanted, "the CRD does not have a field of this status"
    return live


def add_pods(
    plane: ControlPlane, namespace: str, name: str, cluster: str, *, ready: int, hosts: int = 1, chips: int = 0
) -> list[str]:
    """Create the head and the hosts of a RayCluster of a RayService, and return their names. The first `ready` run.

    Each host requests `chips` TPU chips.
    """
    names = []
    for number, group in enumerate(["head", *["worker"] * hosts]):
        labels = {
            "slipway.dev/model": name,
            "ray.io/cluster": cluster,
            "ray.io/node-type": group,
            "ray.io/group": "headgroup" if group == "head" else "slice",
            "ray.io/worker-group-replica-index": str(max(0, number - 1)),
        }
        waits = {} if number < ready else {"simulated/pending": "true"}
        meta = {"name": f"{cluster}-{group}-{number}", "namespace": namespace, "labels": labels, "annotations": waits}
        container: Object = {"name": f"ray-{group}", "image": "example.invalid/serve:1"}
        if chips and group == "worker":
            requested = {"google.com/tpu": chips}
            container["resources"] = {"requests": requested, "limits": requested}
        spec = {"containers": [container], "nodeName": "node1"}
        plane.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        names.append(f"{cluster}-{group}-{number}")
    return names
