"""The harness itself: what the control plane guarantees to tests."""

from __future__ import annotations

import datetime
import functools
import http.server
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.prerequisites import require
from tests.tools import tool
from tests.trainer.ray_nodes import own_address


def until(holds: Callable[[], Any], seconds: float = 60) -> Any:
    """The first true value of `holds`. Raises AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"timed out after {seconds} s"
        time.sleep(0.05)
    return found


def pod(namespace: str, name: str, node: str = "", annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {
            "containers": [{"name": "trainer", "image": "example.invalid/trainer:1"}],
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            **({"nodeName": node} if node else {}),
        },
    }


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane) -> Iterator[str]:
    (name,) = control_plane.add_nodes("harness", "cpu", "", 1, 0)
    yield name
    control_plane.api.delete(f"/api/v1/nodes/{name}")


def test_it_is_kubernetes_and_serves_upstreams_kinds(control_plane: ControlPlane) -> None:
    assert control_plane.api.get("/version")["gitVersion"] == "v1.36.2"
    groups = {group["name"] for group in control_plane.api.get("/apis")["groups"]}
    assert {"kueue.x-k8s.io", "jobset.x-k8s.io", "ray.io"} <= groups


def test_users_have_the_rights_that_they_are_given(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "research", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "Group", "name": "research", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount", "name": "default", "namespace": namespace},
            ],
        }
    )
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for file in (
        control_plane.kubeconfig_for("alice", ["research"], namespace),
        control_plane.kubeconfig_for_service_account(namespace, "default"),
    ):
        user = Api(file)
        until(functools.partial(allowed, user, pods))
        with pytest.raises(ApiError, match="forbidden"):
            user.get("/api/v1/namespaces/kube-system/pods")
        user.close()
    stranger = Api(control_plane.kubeconfig_for("mallory", token="no-token-of-this-server"))
    with pytest.raises(ApiError, match="401"):
        stranger.get(pods)
    stranger.close()


def allowed(user: Api, path: str) -> bool:
    """Whether the user may get `path`. A new binding takes effect with a delay."""
    try:
        user.get(path)
    except ApiError as error:
        assert error.status == 403
        return False
    return True


def test_annotations_control_when_pods_end(control_plane: ControlPlane, namespace: str, node: str) -> None:
    api = control_plane.api
    runs = {"fine": {"simulated/run-for": "0.1s"}, "bad": {"simulated/run-for": "0.1s", "simulated/exit-code": "3"}}
    for name, keys in {**runs, "long": {}}.items():
        api.create(pod(namespace, name, node, keys))

    def status(name: str) -> dict[str, Any]:
        found: dict[str, Any] = api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]
        return found

    until(lambda: status("fine")["phase"] == "Succeeded")
    until(lambda: status("bad")["phase"] == "Failed")
    assert status("bad")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    until(lambda: status("long")["phase"] == "Running")
    time.sleep(0.3)  # longer than the others ran
    assert status("long")["phase"] == "Running"
    api.delete(f"/api/v1/namespaces/{namespace}/pods/long")
    until(lambda: api.find(f"/api/v1/namespaces/{namespace}/pods/long") is None)


def test_a_slice_has_gkes_labels_and_its_pods_are_scheduled(control_plane: ControlPlane, namespace: str) -> None:
    names = control_plane.add_nodes("slice", "tpu-v6e-slice", "2x4", 2, 4, **{"cloud.google.com/gke-spot": "true"})
    made = pod(namespace, "worker")
    made["spec"]["nodeSelector"] = {"cloud.google.com/gke-tpu-topology": "2x4", "cloud.google.com/gke-spot": "true"}
    made["spec"]["containers"][0]["resources"] = {"limits": {"google.com/tpu": "4"}}
    control_plane.api.create(made)
    path = f"/api/v1/namespaces/{namespace}/pods/worker"
    assert until(lambda: control_plane.api.get(path)["spec"].get("nodeName")) in names
    for name in names:
        control_plane.api.delete(f"/api/v1/nodes/{name}")


def test_logs_are_read_as_from_a_kubelet(control_plane: ControlPlane, namespace: str, node: str) -> None:
    control_plane.api.create(pod(namespace, "talks", node))
    path = f"/api/v1/namespaces/{namespace}/pods/talks/log"
    where = (namespace, "talks", "trainer")
    early = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    control_plane.write_log(*where, ["one"], early)
    control_plane.write_log(*where, ["two", "three"])
    api = control_plane.api
    assert api.get(path) == "one\ntwo\nthree\n"
    assert api.get(f"{path}?tailLines=1&container=trainer") == "three\n"
    assert api.get(f"{path}?timestamps=true").startswith("2026-01-02T03:04:05.000000000Z one\n")
    assert api.get(f"{path}?sinceTime=2026-01-02T03:04:06Z") == "two\nthree\n"
    follow = api.lines(f"{path}?follow=true&tailLines=1")
    assert next(follow) == "three"
    control_plane.write_log(*where, ["four"])
    assert next(follow) == "four"
    control_plane.cut_logs()
    assert list(follow) == []
    control_plane.end_log(*where)
    assert list(api.lines(f"{path}?follow=true&tailLines=2")) == ["three", "four"]
    control_plane.restart_log(*where)
    control_plane.write_log(*where, ["again"])
    assert api.get(path) == "again\n"
    assert api.get(f"{path}?previous=true&tailLines=1") == "four\n"


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_service_leads_to_a_process_of_this_machine(control_plane: ControlPlane, namespace: str) -> None:
    address = own_address()
    require(
        not address.startswith("127."),
        "The API server does not proxy to loopback, and this machine has no other address. Connect it to a network.",
    )
    with http.server.HTTPServer((address, 0), Hello) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            control_plane.serve(namespace, "head", address, {"dashboard": server.server_address[1]})
            path = f"/api/v1/namespaces/{namespace}/services/http:head:dashboard/proxy/api/version"
            assert control_plane.api.get(path) == "/api/version"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.own_cluster
def test_kubectl_reads_the_same_kubeconfig(kubeconfig: Path, api: Api, namespace: str) -> None:
    command = [str(tool("kubectl")), "--kubeconfig", str(kubeconfig), "get", "namespace", namespace, "-o", "name"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"namespace/{namespace}\n"
    assert api.get(f"/api/v1/namespaces/{namespace}")["metadata"]["name"] == namespace
