"""Clusters that do not answer, refuse, or lack what a run needs: an error, exit code 1, and an unchanged cluster."""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.server
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import drop_file_privileges
from tests.cluster.api import path_of
from tests.cluster.certificates import Authority
from tests.cluster.control_plane import ControlPlane, free_ports
from tests.cluster.launching import ROOT, LauncherCli, until
from tests.cluster.proxy import Proxy

Config = dict[str, Any]


def altered(plane: ControlPlane, folder: Path, change: Callable[[Config, Config, Config], None]) -> Path:
    """A copy of the admin's kubeconfig, changed by `change`, which gets its cluster, its user and the whole file."""
    config = json.loads(plane.admin.read_text())
    change(config["clusters"][0]["cluster"], config["users"][0]["user"], config)
    file = folder / "altered.kubeconfig"
    file.write_text(json.dumps(config))
    return file


WITHOUT_ANSWER = "Check the network or VPN, and that this is the cluster you mean: kubectl config current-context."
LOG_IN = "Log in again (on GKE: gcloud auth login), and check that kubectl get pods works."
PLUGIN_FAILED = "On GKE: gcloud auth login."
UNKNOWN = "The API server of the context admin rejects your credentials"


def server(url: str) -> Callable[[Config, Config, Config], None]:
    return lambda cluster, _user, _all: cluster.update(server=url)


def user(**credentials: Any) -> Callable[[Config, Config, Config], None]:
    def change(_cluster: Config, user: Config, _all: Config) -> None:
        user.clear()
        user.update(credentials)

    return change


def plugin(*command: str) -> Callable[[Config, Config, Config], None]:
    """A credential plugin, such as gke-gcloud-auth-plugin, which prints the token."""
    version = "client.authentication.k8s.io/v1"
    return user(exec={"apiVersion": version, "command": command[0], "args": command[1:], "interactiveMode": "Never"})


# FILE is replaced by the path of the kubeconfig.
ALTERED: dict[str, tuple[Callable[[Config, Config, Config], None], str, str]] = {
    "unknown name": (
        server("https://no-such-host.invalid:6443"),
        "The API server of the context admin (https://no-such-host.invalid:6443) does not answer: its name cannot be "
        "resolved.",
        WITHOUT_ANSWER,
    ),
    "no URL": (
        server("127.0.0.1:6443"),
        'The kubeconfig FILE gives "127.0.0.1:6443" as the server of the cluster test; it must be a URL that begins '
        "with https://.",
        "",
    ),
    "token": (
        user(token="no-token-of-this-server"),
        f"{UNKNOWN}: the token or certificate is missing or expired.",
        LOG_IN,
    ),
    "nobody": (user(), f"{UNKNOWN}: the kubeconfig has no credentials for it.", LOG_IN),
    "plugin missing": (
        plugin("no-such-plugin"),
        "The credential plugin of FILE failed: no-such-plugin is not installed.",
        "Install it, or correct its path in the kubeconfig (users: user.exec.command).",
    ),
    "plugin fails": (
        # With the prefix that the real plugin's logger writes.
        plugin("sh", "-c", "echo 'F1123 22:21:05.123456    1234 cred.go:145] Please log in.' >&2; exit 1"),
        "The credential plugin of FILE failed: sh ended with the exit code 1. Please log in.",
        PLUGIN_FAILED,
    ),
    "no such cluster": (
        lambda _cluster, _user, everything: everything.update(clusters=[]),
        'FILE:1: the context admin names the cluster "test", which the kubeconfig does not have.',
        "kubectl config view shows it.",
    ),
    "no such context": (
        lambda _cluster, _user, everything: everything.update({"current-context": "admins"}),
        'FILE has no context "admins"; did you mean "admin"?',
        "kubectl config get-contexts lists them.",
    ),
    "certificate's file": (
        lambda cluster, _user, _all: cluster.update({"certificate-authority": "/no/such/file"}),
        "FILE:1: certificate-authority of the cluster test is /no/such/file, which cannot be read: No such file or "
        "directory.",
        "",
    ),
}


def printed(message: str, hint: str = "") -> str:
    return f"Error: {message}\n" + (f"Hint: {hint}\n" if hint else "")


@pytest.mark.parametrize("case", ALTERED)
def test_an_unusable_kubeconfig(case: str, cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path) -> None:
    change, message, hint = ALTERED[case]
    file = altered(control_plane, tmp_path, change)
    expected = printed(message.replace("FILE", str(file)), hint)
    other = LauncherCli(file, cli.namespace, tmp_path / "other")
    listed = other("list", "-n", cli.namespace)
    assert (listed.code, listed.out, listed.err) == (1, "", expected)
    submit = other("submit", "-f", cli.values(), "--detach")
    assert (submit.code, submit.out) == (1, "")
    assert submit.err.endswith(expected)
    assert cli.runs(control_plane.api) == []


def test_an_expired_token_is_requested_again(cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path) -> None:
    """The token is from a plugin, as on GKE, where tokens are valid for an hour, and runs take days."""
    assert cli("submit", "-f", cli.values(), "--detach").code == 0
    control_plane.api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "robot", "namespace": cli.namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": cli.namespace}],
        }
    )
    calls = tmp_path / "calls"
    token = control_plane.service_account_token(cli.namespace, "default")
    soon = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = {"token": token, "expirationTimestamp": soon}
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": answer}
    program = f"echo >> {calls}; echo '{json.dumps(credential)}'"
    file = altered(control_plane, tmp_path, plugin("sh", "-c", program))
    robot = LauncherCli(file, cli.namespace, tmp_path)
    until(lambda: robot("status", "demo", "-n", cli.namespace).code == 0)
    before = len(calls.read_text())
    waited = robot("wait", "demo", "-n", cli.namespace, "--timeout", "1")
    assert (waited.code, waited.err) == (124, printed('Timed out after 1 s: the run "demo" is queued. It continues.'))
    assert len(calls.read_text()) > before + 2


def test_an_address_without_an_api_server(cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path) -> None:
    """A closed port, and a port that accepts the connection but does not answer."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        # The launcher waits only for the TLS handshake, which is a part of the connection.
        for port, cause in ((free_ports(1)[0], "connection refused"), (silent.getsockname()[1], "no answer in time")):
            url = f"https://127.0.0.1:{port}"
            begun = time.monotonic()
            done = LauncherCli(altered(control_plane, tmp_path, server(url)), cli.namespace, tmp_path)(
                "list", "-n", cli.namespace
            )
            message = f"The API server of the context admin ({url}) does not answer: {cause}."
            assert (done.code, done.err) == (1, printed(message, WITHOUT_ANSWER))
            assert time.monotonic() - begun < 18


def test_a_certificate_of_another_authority(cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    change = {"certificate-authority": str(authority.certificate)}
    file = altered(control_plane, tmp_path, lambda cluster, _user, _all: cluster.update(change))
    done = LauncherCli(file, cli.namespace, tmp_path)("list", "-n", cli.namespace)
    assert done.code == 1
    shows = f"The context admin ({control_plane.server}) presents a certificate that the kubeconfig does not trust: "
    assert done.err.startswith(f"Error: {shows}")
    assert done.err.endswith(
        "Hint: The cluster may have been created again: get its credentials again. Otherwise another server may "
        "intercept the connection.\n"
    )


def test_files_that_are_not_a_kubeconfig(cli: LauncherCli, tmp_path: Path) -> None:
    broken, empty, listed, scalar = (tmp_path / name for name in ("broken", "empty", "listed", "scalar"))
    broken.write_text("a: [b")
    empty.write_text("")
    listed.write_text("- a")
    scalar.write_text("hello")
    cases: dict[Path, str] = {
        broken: f"The kubeconfig {broken} is not valid YAML: while parsing a flow sequence at line 1",
        empty: f"{empty} has no current context.\nHint: It has no context at all; to add one on GKE: gcloud ",
        tmp_path: f"The kubeconfig {tmp_path} cannot be read: Is a directory.",
        listed: f"{listed} is not a valid kubeconfig.\n",
        scalar: f"{scalar} is not a valid kubeconfig.\n",
        tmp_path
        / "none": f"KUBECONFIG names {tmp_path / 'none'}, which does not exist, so there is no cluster to connect to.",
    }
    for file, message in cases.items():
        for arguments in (("list", "-n", cli.namespace), ("submit", "-f", cli.values(), "--detach")):
            done = LauncherCli(file, cli.namespace, tmp_path)(*arguments)
            assert (done.code, done.out) == (1, "")
            assert done.err.startswith(f"Error: {message}"), done.err


def test_a_kubeconfig_that_may_not_be_read(cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(control_plane.admin.read_text())
    file.chmod(0)
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "list", "-n", cli.namespace],
        env={**os.environ, **LauncherCli(file, cli.namespace, tmp_path).env, "PYTHONPATH": str(ROOT)},
        preexec_fn=drop_file_privileges,
        text=True,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (1, printed(f"The kubeconfig {file} cannot be read: Permission denied."))


def test_a_missing_namespace(cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path) -> None:
    gone = LauncherCli(cli.kubeconfig, "no-such-namespace", tmp_path / "gone")
    message = "The namespace no-such-namespace does not exist in the context admin."
    hint = "charts/queues creates one for each of its teams; team.name and team.namespace select one."
    for options in (("--detach",), ("--dry-run",), ("--detach", "--force")):
        done = gone("submit", "-f", gone.values(), *options)
        assert (done.code, done.out) == (1, "")
        assert done.err.endswith(printed(message, hint))
    listed = gone("list", "-n", "no-such-namespace")
    assert (listed.code, listed.out) == (0, "")
    assert listed.err == f"Warning: {message}\n"


# The answer of a real API server to a path of a group that it does not serve.
ABSENT = b"404 page not found\n"


def test_kinds_that_the_cluster_does_not_serve(cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path) -> None:
    """A cluster without JobSet or Kueue. A proxy hides the groups, because these tests' API server has all of them."""
    assert control_plane.api.open("GET", "/apis/example.com/v1/things").data == ABSENT
    with Proxy(control_plane) as proxy:
        proxy.answers = lambda _method, path: (404, ABSENT) if path.startswith("/apis/jobset.x-k8s.io/") else None
        without = LauncherCli(proxy.kubeconfig(tmp_path, cli.namespace), cli.namespace, tmp_path / "other")
        for options in (("--detach",), ("--dry-run",)):
            done = without("submit", "-f", cli.values("job-set"), *options)
            assert (done.code, done.out) == (1, "")
            assert done.err.endswith(
                printed(
                    "The API server of the cluster proxied does not serve jobsets of jobset.x-k8s.io/v1alpha2: JobSet "
                    "is not installed there, or its version is not supported.",
                    "launcher doctor shows what the cluster has.",
                )
            )
        # Without Kueue, a run is not queued.
        proxy.answers = lambda _method, path: (404, ABSENT) if path.startswith("/apis/kueue.x-k8s.io/") else None
        done = without("submit", "-f", cli.values("job-set"), "--dry-run")
        assert done.code == 0
        assert "queue.name: Kueue is not installed in the cluster proxied, so demo would not wait" in done.err
        proxy.answers = lambda _method, path: (404, ABSENT) if path.startswith("/apis/jobset.x-k8s.io/") else None
        # Runs of the other kind still work.
        assert without("submit", "-f", cli.values("ray-job"), "--detach").code == 0
        assert [run["name"] for run in without("list", "-n", cli.namespace, "-o", "json").json] == ["demo"]


# --- admission webhooks ---------------------------------------------------------------------------------------------


class DenyingWebhook(http.server.BaseHTTPRequestHandler):
    """A webhook that rejects all requests with a message."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"message": "Slices of 2x4 are for guests."}
        answer = {"uid": review["request"]["uid"], "allowed": False, "status": status}
        body = json.dumps({**review, "request": None, "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def webhook(plane: ControlPlane, namespace: str, url: str) -> Iterator[None]:
    """While this is open, the API server sends new JobSets of the namespace to the webhook at `url`."""
    rule = {"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "resources": ["jobsets"], "operations": ["CREATE"]}
    bundle = base64.b64encode(Path(plane.authority.certificate).read_bytes()).decode()
    hook = {
        "name": "guests.example.com",
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "clientConfig": {"url": url, "caBundle": bundle},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 2,
    }
    made = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"guests-{namespace}"},
        "webhooks": [hook],
    }
    plane.api.create(made)
    try:
        yield
    finally:
        plane.api.delete(path_of(made))


def test_a_webhook_that_refuses_and_one_that_does_not_answer(cli: LauncherCli, control_plane: ControlPlane) -> None:
    file = cli.values("job-set")

    def refused() -> str:
        """The error of a submit when the webhook is in effect, which takes a moment."""
        preview = until(lambda: (done := cli("submit", "-f", file, "--dry-run")).code and done)
        done = cli("submit", "-f", file, "--detach")
        assert (preview.code, done.code, preview.out, done.out) == (1, 1, "", "")
        assert done.err == f"Submitting to {cli.target}.\n{preview.err}"
        return str(preview.err)

    certificate, key = control_plane.authority.issue("webhook", hosts=("127.0.0.1",))
    with http.server.HTTPServer(("127.0.0.1", 0), DenyingWebhook) as served:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        served.socket = context.wrap_socket(served.socket, server_side=True)
        thread = threading.Thread(target=served.serve_forever, args=(0.05,))
        thread.start()
        try:
            with webhook(control_plane, cli.namespace, f"https://127.0.0.1:{served.server_port}/"):
                assert refused() == printed(
                    "The API server of the context admin rejects the request: Slices of 2x4 are for guests. (from the "
                    "admission webhook guests.example.com)"
                )
        finally:
            served.shutdown()
            thread.join()
    until(lambda: cli("submit", "-f", file, "--dry-run").code == 0)
    port = free_ports(1)[0]
    with webhook(control_plane, cli.namespace, f"https://127.0.0.1:{port}/"):
        message, hint = refused().splitlines()
    assert message.startswith(
        "Error: The admission webhook guests.example.com of the context admin does not answer, so nothing was changed: "
    )
    assert message.endswith(f"dial tcp 127.0.0.1:{port}: connect: connection refused.")
    assert (
        hint == "Hint: Its controller is down or starting; launcher doctor "
        "shows which one. Try again when it is running."
    )
    assert cli.runs(control_plane.api) == []


def test_objects_of_a_member_that_only_the_api_server_checked(cli: LauncherCli, control_plane: ControlPlane) -> None:
    """The schemas of RayJob and JobSet accept all of this; tests/fuzz has what they reject."""
    api = control_plane.api
    assert cli("submit", "-f", cli.values(name="good"), "--detach").code == 0
    good = next(obj for obj in cli.runs(api) if obj["metadata"]["name"] == "good")

    def member(name: str, **changes: Any) -> None:
        obj = json.loads(json.dumps(good).replace('"good"', f'"{name}"'))
        obj["metadata"] = {key: obj["metadata"][key] for key in ("name", "namespace", "labels")}
        obj["metadata"]["annotations"] = changes.pop("annotations", {})
        template = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        template["metadata"]["annotations"]["slipway.dev/run-config"] = changes.pop("config", "{}")
        api.create({**obj, **changes})

    deep = '{"a": ' + "[" * 900 + "]" * 900 + "}"
    member("attempt", annotations={"slipway.dev/attempt": "²", "slipway.dev/sweep-values": deep})
    member("config", config='{"slice": 1, "run": [], "train": {"steps": "x"}, "accelerator": {"chips": "x"}}')
    labels = {"slipway.dev/run": "bare"}
    meta = {"name": "bare", "namespace": cli.namespace, "labels": labels}
    api.create({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta})

    listed = cli("list", "-n", cli.namespace)
    assert listed.code == 0, listed.err
    names = {line.partition(" ")[0] for line in listed.out.splitlines()}
    assert {"good", "attempt", "config"} <= names
    sentence = f"The RayJob {cli.namespace}/bare cannot be read: spec is missing."
    assert listed.err == f"Warning: {sentence} It is left out.\n"
    assert json.loads(cli("list", "-n", cli.namespace, "-o", "json").out)
    shown = cli("status", "bare", "-n", cli.namespace)
    assert (shown.code, shown.err.splitlines()[0]) == (1, f"Error: {sentence}")
    for name in ("good", "attempt", "config"):
        for verb in ("status", "explain"):
            assert cli(verb, name, "-n", cli.namespace).code == 0, (verb, name)

    # Kueue's schema requires no spec: the default flavor of its documentation has none.
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default-flavor"}}
    api.create(flavor)
    try:
        assert cli("explain", "good", "-n", cli.namespace).code == 0
    finally:
        api.delete(path_of(flavor))
