"""Why a Ray cluster that was installed is not ready."""

from __future__ import annotations

from typing import Any

from launcher.k8s.client import connect
from launcher.releases import readiness
from tests.cluster.test_install import ReleaseCli
from tests.cluster.test_install import cli4 as cli4

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "ours-head", "labels": {"ray.io/cluster": "ours"}},
    # Without a node, and for a scheduler that does not exist, so that only the test changes its status.
    "spec": {"schedulerName": "nobody", "containers": [{"name": "ray-head", "image": "example.invalid/x:1"}]},
}
WHEN = {"lastTransitionTime": "2026-11-01T00:00:00Z", "reason": "R"}
FULL = "0/3 nodes are available: 3 Insufficient google.com/tpu."
PULL = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}


def test_why_a_ray_cluster_is_not_ready(cli4: ReleaseCli) -> None:
    head = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ours", "namespace": cli4.name}}
    container = {"containers": [{"name": "ray-head", "image": "example.invalid/x:1"}]}
    head["spec"] = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": container}}}
    cluster = connect(None, cli4.name)
    path = f"/apis/ray.io/v1/namespaces/{cli4.name}/rayclusters/ours"
    pod = f"/api/v1/namespaces/{cli4.name}/pods/ours-head"

    def reason() -> str:
        (sentence,) = readiness.not_ready(cluster, [head])
        return sentence

    assert reason() == "The RayCluster of the release no longer exists."
    cli4.api.create(head)
    assert reason() == "RayCluster ours: KubeRay has not processed it yet."
    cli4.api.merge(path, {"spec": {"suspend": True}, "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "ml"}}})
    assert reason() == "RayCluster ours waits in the queue ml for its chips."
    cli4.api.merge(path, {"spec": {"suspend": False}})
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: x", **WHEN}
    cli4.api.merge(f"{path}/status", {"status": {"conditions": [failure]}})
    assert reason() == "RayCluster ours: its pods cannot be created: exceeded quota: x."
    cli4.api.merge(f"{path}/status", {"status": {"conditions": [{**failure, "status": "False"}]}})
    assert reason() == "RayCluster ours: it has 0 pods, but KubeRay does not report it as provisioned yet."
    cli4.api.create({**POD, "metadata": {**POD["metadata"], "namespace": cli4.name}})
    for status, why in (
        ({"conditions": [{"type": "PodScheduled", "status": "False", "message": FULL, **WHEN}]}, FULL),
        ({"containerStatuses": [waiting(PULL)]}, "ImagePullBackOff: Back-off pulling image."),
    ):
        cli4.api.merge(f"{pod}/status", {"status": status})
        assert reason() == f"RayCluster ours: 0 of 1 pods are ready; ours-head: {why}"


def waiting(state: dict[str, str]) -> dict[str, Any]:
    known = {"name": "ray-head", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    return {**known, "state": {"waiting": state}}
