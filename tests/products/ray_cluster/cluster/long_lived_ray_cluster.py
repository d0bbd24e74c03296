"""A long-lived Ray cluster for tests: real Ray with tokens on this machine, behind the real API server.

The RayCluster is rendered from charts/ray-cluster, with a status as KubeRay writes it (see recordings/rayjob-succeeds).
The Service, which KubeRay would create, leads to the Ray head on this machine, and the Secret has its token. The user
is a member of the team, with the Role of charts/queues and no other rights.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from launcher.k8s.target import Target
from launcher.paths import charts_dir
from tests.charts.helm import template
from tests.cluster.control_plane import ControlPlane
from tests.trainer.ray_nodes import RayNodes, own_address
from tests.trainer.runs import TRAIN

MEMBER = "alice@example.com"
NAME = "standing"
QUEUES = """
flavors: {cpu: {accelerator: cpu}}
clusterQueues: {q: {quota: {cpu: {cpu: "40", memory: 80Gi}}}}
teams:
  research: {namespace: NAMESPACE, clusterQueue: q, clusters: [standing, idle], members: {alice@example.com: User}}
"""


@dataclass(frozen=True)
class TeamRayCluster:
    """The team's namespace with the RayCluster NAME, and a values file of its runs."""

    plane: ControlPlane
    ray: RayNodes
    namespace: str
    kubeconfig: Path
    values: Path
    folder: Path

    @property
    def target(self) -> Target:
        return Target(namespace=self.namespace)

    def path(self, kind: str, name: str) -> str:
        root = "/apis/ray.io/v1" if kind in ("rayclusters", "rayjobs") else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{kind}/{name}"

    def set_token(self, token: str) -> None:
        data = {"auth_token": base64.b64encode(token.encode()).decode()}
        self.plane.api.merge(self.path("secrets", NAME), {"data": data})


def for_team(plane: ControlPlane, ray: RayNodes, namespace: str, helm: Path, folder: Path) -> Iterator[TeamRayCluster]:
    values, queues = folder / "values.yaml", folder / "queues.yaml"
    tree = {
        "run": {"kind": "ray-cluster", "cluster": NAME, "maxRestarts": 0},
        "team": {"name": "research", "namespace": namespace},
        "slice": {"accelerator": "cpu", "hosts": 1},
        "worker": {"cpu": "1", "memory": "2Gi"},
        "image": {"repository": "example.invalid/trainer", "tag": "v1"},
        "storage": {"kind": "pvc", "claim": "data", "mountPath": str(folder / "data")},
        "train": {**TRAIN, "dataset_type": "synthetic", "steps": 3, "checkpoint_period": 2, "eval_interval": -1},
    }
    (folder / "data").mkdir()
    values.write_text(json.dumps(tree))
    queues.write_text(QUEUES.replace("NAMESPACE", namespace))
    for obj in yaml.safe_load_all(template(helm, charts_dir() / "queues", [queues])):
        if obj and obj["kind"] in ("Role", "RoleBinding"):
            plane.api.create(obj)
    (cluster,) = yaml.safe_load_all(template(helm, charts_dir() / "ray-cluster", [values]))
    add_ray_cluster(plane, cluster, namespace, NAME, hosts=1)
    secret = {"auth_token": base64.b64encode(ray.token.encode()).decode()}
    meta = {"name": NAME, "namespace": namespace}
    plane.api.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": secret})
    add_head_service(plane, namespace, NAME, urlsplit(ray.dashboard).port or 0)
    kubeconfig = plane.kubeconfig_for(MEMBER, namespace=namespace, context="research")
    yield TeamRayCluster(plane, ray, namespace, kubeconfig, values, folder)


def add_ray_cluster(plane: ControlPlane, cluster: dict[str, Any], namespace: str, name: str, *, hosts: int) -> None:
    """Create a RayCluster with a ready head, and the status as KubeRay writes it."""
    made = {**cluster, "metadata": {**cluster["metadata"], "name": name, "namespace": namespace}}
    plane.api.create(made)
    now = "2026-11-21T06:24:38Z"
    conditions = [
        ("HeadPodReady", "True", "HeadPodRunningAndReady"),
        ("RayClusterProvisioned", "True", "AllPodRunningAndReadyFirstTime"),
        ("RayClusterSuspended", "False", "RayClusterSuspended"),
    ]
    status = {
        "state": "ready",
        "head": {"serviceName": f"{name}-head-svc"},
        "desiredWorkerReplicas": hosts,
        "readyWorkerReplicas": hosts,
        "conditions": [
            {"type": kind, "status": value, "reason": reason, "message": "", "lastTransitionTime": now}
            for kind, value, reason in conditions
        ],
    }
    plane.api.merge(f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{name}/status", {"status": status})


def add_head_service(plane: ControlPlane, namespace: str, name: str, port: int) -> None:
    """Create the head's pod, and the Service that KubeRay creates, whose port 8265 leads to `port` of this machine.

    Returns when the API server proxies to them.
    """
    labels = {"ray.io/cluster": name, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    plane.add_local_pod(namespace, f"{name}-head", own_address(), labels)
    meta = {"name": f"{name}-head-svc", "namespace": namespace}
    spec = {"selector": labels, "ports": [{"name": "dashboard", "port": 8265, "targetPort": port}]}
    plane.api.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
    path = f"/api/v1/namespaces/{namespace}/services/http:{name}-head-svc:8265/proxy/api/gcs_healthz"
    deadline = time.monotonic() + 60
    # The API server proxies to new endpoints with a delay.
    while (answer := plane.api.open("GET", path)).status in (404, 503) and b"refused" not in answer.data:
        assert time.monotonic() < deadline, answer.data.decode()
        time.sleep(0.1)
