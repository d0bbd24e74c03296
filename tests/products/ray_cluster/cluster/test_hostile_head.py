"""A Ray head that records what it receives. A member may run any code on a head, so it must receive no one's token.

The head is an HTTP server on this machine behind the real API server's proxy, in place of a Ray head whose code a
member has changed: a real one does not record its requests. The victim is a cluster admin with a bearer token.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from launcher import api as launcher_api
from launcher.errors import LauncherError
from launcher.k8s.client import RAY_CLUSTER
from launcher.k8s.target import Target
from launcher.products.ray_cluster import users
from launcher.products.ray_cluster.backend import RayClusterBackend
from launcher.products.ray_cluster.dashboard import opened
from tests.charts.queues_chart import BASE, merged, render, tree
from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.control_plane import ControlPlane, remove_namespace
from tests.cluster.launching import LauncherCli
from tests.cluster.test_rbac_workloads import until
from tests.products.ray_cluster.cluster import long_lived_ray_cluster
from tests.tools import tool
from tests.trainer.ray_nodes import own_address

NAME = "trap"
# Jobs as Ray lists them, so that the verbs continue and send as many requests as possible.
JOB = {
    "type": "SUBMISSION",
    "submission_id": "demo-1",
    "status": "RUNNING",
    "message": "",
    "start_time": 1_790_000_000_000,
    "driver_node_id": "a",
    "metadata": {"slipway.dev/run": "demo", "slipway.dev/attempt": "1", "slipway.dev/run-config": "{}"},
}
ANSWERS = {"api/version": {"ray_version": "2.60.0"}, "api/jobs/": [JOB], "api/jobs/demo-1": JOB}


class Head(http.server.BaseHTTPRequestHandler):
    received: ClassVar[list[str]] = []

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.received.append(f"{self.requestline}\n{self.headers}{self.rfile.read(length).decode()}")
        if self.path.endswith("/stop"):
            JOB["status"] = "STOPPED"
        body = json.dumps(ANSWERS.get(self.path.lstrip("/"), {})).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = do_PUT = answer  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Print nothing."""


class Trap(NamedTuple):
    plane: ControlPlane
    namespace: str
    ray_cluster: Object
    victim: Path  # the kubeconfig of a cluster admin
    token: str  # the admin's bearer token

    def received(self) -> list[str]:
        """Return the requests that the head has received since the last call, except for those of this fixture."""
        found = [text for text in Head.received if "gcs_healthz" not in text]
        Head.received.clear()
        return found

    def set_auth(self, **options: Any) -> None:
        auth = {"mode": None, "enableK8sTokenAuth": None, "secretName": None, **options}
        self.plane.api.merge(path_of(self.ray_cluster), {"spec": {"authOptions": auth}})


@pytest.fixture(scope="module")
def trap(control_plane: ControlPlane) -> Iterator[Trap]:
    admin, namespace = control_plane.api, "hostile-head"
    control_plane.add_namespace(namespace)
    server = http.server.ThreadingHTTPServer((own_address(), 0), Head)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    account: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "victim"}}
    account["metadata"]["namespace"] = "default"
    binding: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "hostile-head-victim"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "victim", "namespace": "default"}],
    }
    for obj in (account, binding):
        admin.create(obj)
    token = control_plane.service_account_token("default", "victim")
    victim = control_plane.kubeconfig_for("victim", namespace=namespace, context="victim", token=token)
    pod = {"spec": {"containers": [{"name": "ray", "image": "example.invalid/ray:1"}]}}
    spec = {"rayVersion": "2.60.0", "headGroupSpec": {"rayStartParams": {}, "template": pod}, "workerGroupSpecs": []}
    made: Object = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {}, "spec": spec}
    long_lived_ray_cluster.add_ray_cluster(control_plane, made, namespace, NAME, hosts=0)
    long_lived_ray_cluster.add_head_service(control_plane, namespace, NAME, server.server_address[1])
    found = admin.get(f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{NAME}")
    yield Trap(control_plane, namespace, found, victim, token)
    server.shutdown()
    server.server_close()
    for obj in (binding, account):
        admin.delete(path_of(obj))
    remove_namespace(admin, namespace)


def every_verb(trap: Trap, folder: Path, monkeypatch: pytest.MonkeyPatch, *, run: str = "demo") -> None:
    """Run every verb that looks at Ray clusters, for the cluster and for a run in it. Errors are expected."""
    JOB["status"] = "RUNNING"
    cli = LauncherCli(trap.victim, trap.namespace, folder)
    cli.use_environment(monkeypatch)
    values = cli.values("ray-cluster", name=run, run={"kind": "ray-cluster", "name": run, "cluster": NAME})
    place = ("-n", trap.namespace)
    for arguments in (
        ("list", "-A"),
        ("list", *place),
        ("list", "--clusters", *place),
        ("check", "--live", "-f", values),
        ("submit", "-f", values, "--dry-run"),
        ("submit", "-f", values, "--detach"),
        *((verb, NAME, *place) for verb in ("status", "explain", "logs")),
        *((verb, run, *place) for verb in ("status", "explain", "logs", "cancel")),
        ("wait", run, "--timeout", "1s", *place),
        ("report", run, *place),
        ("doctor", *place),
        ("delete", run, "--yes", *place),
    ):
        cli(*arguments)
    target = Target(namespace=trap.namespace)
    with contextlib.suppress(LauncherError), opened(target.cluster(), NAME):
        pass
    users.active_jobs(target.cluster(), [target.cluster().get(RAY_CLUSTER, NAME) or {}])
    launcher_api.clusters(target=target)


def test_a_head_that_asks_for_the_users_token_receives_nothing(
    trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap.set_auth(mode="token", enableK8sTokenAuth=True)
    every_verb(trap, tmp_path, monkeypatch)
    assert trap.received() == []
    warnings: list[str] = []
    RayClusterBackend(Target(namespace=trap.namespace).cluster()).list(warnings.append)
    (warning,) = warnings
    assert warning.startswith(f"The Ray cluster {NAME} accepts only Kubernetes tokens (enableK8sTokenAuth)")


def test_a_head_without_authentication_receives_no_credentials(
    trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap.set_auth(mode="disabled")
    every_verb(trap, tmp_path, monkeypatch)
    received = trap.received()
    assert any("/api/jobs/" in text for text in received)
    for text in received:
        assert trap.token not in text
        assert "uthorization" not in text


def test_list_sends_no_other_secret_than_the_clusters_own(
    trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member may name any Secret in authOptions.secretName; here, that of another cluster."""
    secret = {"auth_token": base64.b64encode(b"token-of-another-cluster").decode()}
    meta = {"name": "another", "namespace": trap.namespace}
    trap.plane.api.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": secret})
    trap.set_auth(mode="token", secretName="another")
    cli = LauncherCli(trap.victim, trap.namespace, tmp_path)
    for arguments in (("list", "-A"), ("list", "-n", trap.namespace), ("list", "--clusters")):
        cli(*arguments)
    assert trap.received() == []


@pytest.fixture
def listed(trap: Trap, tmp_path: Path) -> Iterator[None]:
    """The platform team has listed the cluster in charts/queues, so the launcher requests a token for it."""
    over = f"teams: {{research: {{namespace: {trap.namespace}, clusters: [{NAME}], k8sTokenAuth: true}}}}"
    rendered = render(tool("helm"), merged(BASE, tree(over)), tmp_path)
    made = [obj for obj in rendered if obj["metadata"]["name"] == f"{NAME}-ray-client"]
    assert {obj["kind"] for obj in made} == {"ServiceAccount", "Role", "RoleBinding"}
    for obj in made:
        trap.plane.api.create(obj)
    yield
    for obj in made:
        trap.plane.api.delete(path_of(obj))


@pytest.mark.usefixtures("listed")
def test_a_listed_cluster_receives_a_token_that_is_useless_elsewhere(
    trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap.set_auth(mode="token", enableK8sTokenAuth=True)
    LauncherCli(trap.victim, trap.namespace, tmp_path)("list", "-A")
    assert trap.received() == []  # it names no cluster
    every_verb(trap, tmp_path, monkeypatch)
    received = trap.received()
    assert received
    tokens = {line.split()[-1] for text in received for line in text.splitlines() if "x-ray-auth" in line.lower()}
    assert all("x-ray-authorization: bearer " in text.lower() for text in received)
    assert trap.token not in "".join(received)
    for token in tokens:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        assert claims["sub"] == f"system:serviceaccount:{trap.namespace}:{NAME}-ray-client"
        assert claims["exp"] - time.time() <= 600
    stolen = Api(trap.plane.kubeconfig_for("thief", namespace=trap.namespace, token=tokens.pop()))
    assert may(stolen, trap.namespace, "ray:write", "rayclusters", "ray.io", NAME)
    for verb, resource, group in (
        *(("get", "secrets", ""), ("create", "rayjobs", "ray.io"), ("patch", "rayclusters", "ray.io")),
        *(("list", "pods", ""), ("ray:write", "rayclusters", "ray.io"), ("create", "serviceaccounts/token", "")),
    ):
        assert not may(stolen, trap.namespace, verb, resource, group), (verb, resource)
    stolen.close()


@pytest.mark.usefixtures("listed")
def test_a_member_can_request_tokens_of_this_account_only(trap: Trap, tmp_path: Path) -> None:
    over = f"""
    teams:
      research:
        {{namespace: {trap.namespace}, members: {{carol: User}}, clusters: [{NAME}], k8sTokenAuth: true}}
    """
    for obj in render(tool("helm"), merged(BASE, tree(over)), tmp_path):
        if obj["kind"] in ("Role", "RoleBinding") and obj["metadata"]["name"] == "research-member":
            trap.plane.api.create(obj)
    carol = Api(trap.plane.kubeconfig_for("carol", namespace=trap.namespace))
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{trap.namespace}/serviceaccounts/{{}}/token"
    until(lambda: carol.request("POST", path.format(f"{NAME}-ray-client"), body)["status"]["token"])
    with pytest.raises(ApiError, match="cannot create resource"):
        carol.request("POST", path.format("default"), body)
    carol.close()


def may(user: Api, namespace: str, verb: str, resource: str, group: str, name: str = "") -> bool:
    resource, _, subresource = resource.partition("/")
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**attributes, "subresource": subresource}},
    }
    found = user.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(found["status"]["allowed"])
