"""Reading objects, tokens and logs of RayClusters; cluster/test_ray_cluster_runs.py runs a real Ray."""

from __future__ import annotations

import base64
import json
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.backends import progress
from launcher.backends.base import RunStatus, State
from launcher.errors import LauncherError
from launcher.k8s import label_keys
from launcher.k8s.client import SERVICE_ACCOUNT, Cluster, Forbidden
from launcher.products.ray_cluster import attempts as standing_jobs
from launcher.products.ray_cluster import fit
from launcher.products.ray_cluster.backend import without_beginning
from launcher.products.ray_cluster.logs import of_worker
from launcher.products.ray_cluster.tokens import Token, TokenNotSent, token_of

SECRET = "a-secret-token-0123456789"


class Secrets:
    """A cluster that has only Secrets and service accounts. The tests check which names are read.

    tests/products/ray_cluster/cluster/test_hostile_head.py requests tokens from a real API server.
    """

    name, cli_args = "the cluster test", " -n ns"

    def __init__(self, secrets: dict[str, bytes], accounts: dict[str, str] | None = None) -> None:
        self.secrets = secrets
        self.accounts = accounts or {}  # by name: the Ray cluster in their label
        self.requested: list[str] = []

    def get(self, kind: Any, name: str, namespace: str) -> Any:
        if name == "forbidden":
            raise Forbidden("You may not get secrets.", "", verb="get", resource="secrets", group="", namespace="ns")
        if kind is SERVICE_ACCOUNT:
            label = self.accounts.get(name)
            return None if label is None else {"metadata": {"name": name, "labels": {label_keys.RAY_CLIENT: label}}}
        data = self.secrets.get(name)
        return None if data is None else {"data": {"auth_token": base64.b64encode(data).decode()}}

    def request(self, method: str, path: str, *, body: bytes, **_: Any) -> Any:
        self.requested.append(f"{method} {path} {json.loads(body)['spec']['expirationSeconds']}")
        return SimpleNamespace(json_object=lambda: {"status": {"token": SECRET}})


def ray_cluster(name: str = "c", options: dict[str, Any] | None = None, *groups: dict[str, Any]) -> dict[str, Any]:
    pod = {
        "template": {"spec": {"containers": [{"name": "ray", "volumeMounts": [{"name": "s", "mountPath": "/data"}]}]}}
    }
    spec = {"headGroupSpec": pod, "workerGroupSpecs": list(groups), "rayVersion": "2.60.0"}
    if options is not None:
        spec["authOptions"] = options
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": {}}


@pytest.mark.parametrize(
    ("name", "options", "secret"),
    [
        ("c", {"mode": "token"}, "c"),
        ("c", {}, "c"),  # KubeRay's default mode is token
        ("c", {"mode": "token", "secretName": "own"}, "own"),
        # KubeRay keeps the last 50 characters of the name; if they do not start with a letter, the first becomes an r.
        ("a" * 5 + "-" + "b" * 49, {"mode": "token"}, "r" + "b" * 49),
    ],
)
def test_the_token_is_in_the_secret_that_kuberay_creates(name: str, options: dict[str, Any], secret: str) -> None:
    found = token_of(cast(Cluster, Secrets({secret: f"{SECRET}\n".encode()})), ray_cluster(name, options), named=True)
    assert found == Token(SECRET, f"the Secret {secret}")
    assert SECRET not in repr(found)


@pytest.mark.parametrize("options", [None, {"mode": "disabled"}])
def test_without_token_authentication_none_is_read(options: dict[str, Any] | None) -> None:
    assert token_of(cast(Cluster, Secrets({})), ray_cluster("forbidden", options), named=False) is None


K8S_TOKENS = {"mode": "token", "enableK8sTokenAuth": True}


def test_a_kubernetes_token_is_that_of_the_clients_service_account() -> None:
    cluster = Secrets({}, {"c-ray-client": "c"})
    found = token_of(cast(Cluster, cluster), ray_cluster("c", K8S_TOKENS), named=True)
    assert found is not None and found.renew_at is not None
    assert (found.text, found.origin) == (SECRET, "a token of the service account c-ray-client")
    assert 400 < found.renew_at - time.monotonic() < 600
    assert cluster.requested == ["POST /api/v1/namespaces/ns/serviceaccounts/c-ray-client/token 600"]
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("accounts", "named", "sentence"),
    [
        ({}, True, "sends none to it: the platform team has not listed it"),
        # The name alone is not sufficient: the account could have other rights.
        ({"c-ray-client": ""}, True, "sends none to it: the platform team has not listed it"),
        ({"c-ray-client": "c"}, False, "this command sends none, because it does not name the cluster"),
    ],
)
def test_a_cluster_that_receives_no_kubernetes_token(accounts: dict[str, str], named: bool, sentence: str) -> None:
    cluster = Secrets({}, accounts)
    with pytest.raises(TokenNotSent, match=sentence):
        token_of(cast(Cluster, cluster), ray_cluster("c", K8S_TOKENS), named=named)
    assert cluster.requested == []


def test_a_secret_of_another_name_is_only_sent_to_a_cluster_that_the_user_named() -> None:
    cluster = cast(Cluster, Secrets({"own": SECRET.encode()}))
    with pytest.raises(TokenNotSent, match="its authOptions name the Secret own"):
        token_of(cluster, ray_cluster("c", {"secretName": "own"}), named=False)


@pytest.mark.parametrize(
    ("name", "secrets", "sentence"),
    [
        ("c", {}, "The Secret c .* does not exist"),
        ("c", {"c": b""}, "The Secret c .* has no Ray token under the key auth_token"),
        ("c", {"c": b"\xff"}, "The Secret c .* has no Ray token"),
        ("forbidden", {}, "You may not get secrets, and the Secret forbidden holds the token of the Ray cluster"),
    ],
)
def test_a_token_that_cannot_be_read(name: str, secrets: dict[str, bytes], sentence: str) -> None:
    with pytest.raises(LauncherError, match=sentence):
        token_of(cast(Cluster, Secrets(secrets)), ray_cluster(name, {"mode": "token"}), named=False)


# --- what fits --------------------------------------------------------------------------------------------------

V6E = {"name": "v6e", "kind": "tpu", "label": "tpu-v6e-slice", "topology": "4x4", "chipsPerHost": 4, "hosts": 4}
H100 = {"name": "h100", "kind": "gpu", "label": "nvidia-h100-80gb", "topology": "", "chipsPerHost": 8, "hosts": 2}
CPU = {"name": "cpu", "kind": "cpu", "label": "", "topology": "", "chipsPerHost": 1, "hosts": 2}


def group(replicas: int, hosts: int, limits: dict[str, str], selector: dict[str, str], **more: Any) -> dict[str, Any]:
    mounts = [{"name": "s", "mountPath": "/data"}]
    containers = [{"name": "ray", "resources": {"limits": limits}, "volumeMounts": mounts, **more}]
    pod = {"spec": {"containers": containers, "nodeSelector": selector}}
    return {"groupName": "slice", "replicas": replicas, "maxReplicas": 2**31 - 1, "numOfHosts": hosts, "template": pod}


TPUS = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "4x4"}
SLICES = group(2, 4, {"google.com/tpu": "4"}, TPUS)
GPUS = group(4, 1, {"nvidia.com/gpu": "8"}, {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"})
HOSTS = group(3, 1, {}, {})


def config(row: dict[str, Any], count: int = 1, **worker: Any) -> dict[str, Any]:
    return {
        "run": {"command": []},
        "slice": {"count": count},
        "accelerator": row,
        "storage": {"mountPath": "/data"},
        "worker": {"secretEnv": {}, "envFrom": {}, **worker},
    }


@pytest.mark.parametrize(
    ("groups", "run_config", "sentence"),
    [
        (SLICES, config(V6E, 2), None),
        (SLICES, config(V6E, 3), "requires 3 slices of tpu-v6e-slice 4x4 .* has 2 slices of tpu-v6e-slice 4x4"),
        (SLICES, config({**V6E, "topology": "2x4", "hosts": 2}), "requires 1 slice of tpu-v6e-slice 2x4"),
        (SLICES, config({**V6E, "chipsPerHost": 8, "hosts": 2}), "2 hosts with 8 chips"),
        (SLICES, config(H100), "requires 2 hosts with 8 GPUs of nvidia-h100-80gb"),
        (GPUS, config(H100, 2), None),
        (GPUS, config(H100, 3), "requires 6 hosts with 8 GPUs"),
        (HOSTS, config(CPU), None),
        (HOSTS, config(CPU, 2), "requires 4 hosts, but the Ray cluster c has 3 hosts without chips, group slice"),
        (HOSTS, config(CPU, secretEnv={"A": {"name": "s", "key": "k"}}), "worker.secretEnv.A: the group slice"),
        (HOSTS, config(CPU, envFrom={"settings": "ConfigMap"}), "worker.envFrom.settings: the group slice"),
        (
            group(2, 1, {}, {}, env=[{"name": "A"}], envFrom=[{"configMapRef": {"name": "settings"}}]),
            config(CPU, secretEnv={"A": {"name": "s", "key": "k"}}, envFrom={"settings": "ConfigMap"}),
            None,
        ),
    ],
)
def test_what_fits_on_a_cluster(groups: dict[str, Any], run_config: dict[str, Any], sentence: str | None) -> None:
    cluster = ray_cluster("c", None, groups)
    if sentence is None:
        fit.check_fit(cluster, run_config)
        return
    with pytest.raises(LauncherError, match=sentence):
        fit.check_fit(cluster, run_config)


# --- logs -------------------------------------------------------------------------------------------------------

LOG = """\
Running entrypoint for job x-1: python -m trainer
(RayTrainWorker pid=7, ip=10.0.0.2) hello from seven
(RayTrainWorker pid=7, ip=10.0.0.3) hello from the other seven
(TrainController pid=5) - (ip=10.0.0.3, pid=7) world_rank=0, local_rank=0, node_rank=0
(TrainController pid=5) - (ip=10.0.0.2, pid=7) world_rank=1, local_rank=0, node_rank=1
(RayTrainWorker pid=7, ip=10.0.0.3) SLIPWAY_EVENT {"event": "loop_started", "step": 0, "steps": 8, "devices": 4}
(RayTrainWorker pid=7, ip=10.0.0.3) SLIPWAY_METRICS {"step": 0, "loss": 9.5, "tokens_per_second_per_device": 10}
(RayTrainWorker pid=7, ip=10.0.0.3) SLIPWAY_METRICS {"step": 0, "loss": 9.5, "tokens_per_second_per_device": 10}
(RayTrainWorker pid=7, ip=10.0.0.2) working
(TrainController pid=5) SLIPWAY_EVENT {"event": "worker_failed", "message": "worker 1: Killed"}
(RayTrainWorker pid=9, ip=10.0.0.3) SLIPWAY_EVENT {"event": "loop_started", "step": 0, "steps": 8, "devices": 8}
(RayTrainWorker pid=9, ip=10.0.0.3) SLIPWAY_METRICS {"step": 0, "loss": 9.4, "tokens_per_second_per_device": 20}
(RayTrainWorker pid=9, ip=10.0.0.3) SLIPWAY_METRICS {"step": 1, "loss": 8.5, "tokens_per_second_per_device": 20}
(RayTrainWorker pid=9, ip=10.0.0.3) SLIPWAY_METRICS {"step": 2, "loss": 8.
Error: The disk is full.
""".splitlines()


def test_a_workers_lines_are_found_by_address_and_process() -> None:
    assert list(of_worker(LOG, 1)) == [LOG[1], LOG[8]]
    assert list(of_worker(LOG, 0))[:2] == [LOG[2], LOG[5]]
    with pytest.raises(LauncherError, match="Worker 2 was not found: the run has 2, counted from 0"):
        list(of_worker(LOG, 2))
    hosts = ["(host 0) a", "b", "(host 1) c"]
    assert list(of_worker(hosts, 1)) == ["(host 1) c"]


def test_progress_is_read_from_a_log_with_duplicate_lines() -> None:
    reader = progress.Reader(steps=None, devices=2)
    for start in range(len(LOG)):  # each read overlaps the previous one
        reader.feed(LOG[max(0, start - 3) : start + 1])
    found = reader.progress()
    assert (found.step, found.steps, found.loss, found.loss_first) == (2, 8, 8.5, 9.5)
    assert (found.loops, found.restarts, found.failing, found.reason) == (2, 1, False, "The disk is full.")
    # Three steps with 10, 20 and 20 tokens/s: their harmonic mean times 8 devices.
    assert found.tokens_per_second == pytest.approx(8 * 3 / (1 / 10 + 2 / 20))
    end = without_beginning(progress.read(LOG[12:13], steps=None, devices=2))
    assert (end.step, end.loops, end.loss, end.loss_first) == (2, 1, 8.5, None)
    failing = progress.read(LOG[:10], steps=None, devices=2)
    assert (failing.failing, failing.failure) == (True, "worker 1: Killed")


def test_a_stop_signal_is_not_a_restart() -> None:
    message = "A host received a stop signal: all hosts stopped after 3 steps, with a checkpoint, and resume."
    lines = [LOG[5], f'SLIPWAY_EVENT {{"event": "preempted", "step": 3, "message": "{message}"}}']
    stopped = progress.read(lines, steps=None, devices=2)
    assert (stopped.failing, stopped.failure, stopped.restarts) == (True, message, 0)
    again = progress.read([*lines, LOG[10]], steps=None, devices=2)
    assert (again.failing, again.loops, again.restarts) == (False, 2, 0)


@pytest.mark.parametrize("prefix", ["SLIPWAY_METRICS ", "SLIPWAY_EVENT "])
def test_a_line_with_too_deep_nesting_is_skipped(prefix: str) -> None:
    damaged = prefix + '{"step": ' + "[" * 100_000
    assert progress.read([damaged, *LOG], steps=None, devices=2) == progress.read(LOG, steps=None, devices=2)


def test_progress_leaves_state_and_reason_as_they_are() -> None:
    status = RunStatus("x", "ns", "ray-cluster", State.RUNNING, reason="busy", steps=8)
    applied = progress.apply(status, progress.read(LOG, steps=None, devices=2))
    assert (applied.state, applied.reason, applied.step, applied.steps, applied.restarts) == (
        "running",
        "busy",
        2,
        8,
        1,
    )
    assert progress.apply(status, progress.read([], steps=None, devices=2)) == status


@pytest.mark.parametrize(
    ("status", "message", "lines", "state", "reason"),
    [
        ("PENDING", "", [], State.QUEUED, "Ray is about to start its driver"),
        ("RUNNING", "", LOG[:1], State.STARTING, "starting the driver, then loading and compiling the model"),
        ("RUNNING", "", LOG[:9], State.RUNNING, ""),
        ("RUNNING", "", LOG[:10], State.RESTARTING, "worker 1: Killed"),
        ("SUCCEEDED", "Job finished successfully.", [], State.SUCCEEDED, ""),
        ("STOPPED", "Job was intentionally stopped.", [], State.CANCELLED, "Cancelled."),
        ("FAILED", "Job entrypoint command failed", LOG, State.FAILED, "The disk is full."),
        ("FAILED", "It failed, last logs:\nError: No text.\n", [], State.FAILED, "No text."),
        ("FAILED", "Unexpected error occurred: gone", [], State.FAILED, "Unexpected error occurred: gone"),
        (
            "FAILED",
            "failed:\n/usr/bin/python: No module named trainer",
            [],
            State.FAILED,
            "The image of the Ray cluster",
        ),
    ],
)
def test_a_jobs_state_and_reason(status: str, message: str, lines: list[str], state: State, reason: str) -> None:
    known = progress.read(lines, steps=None, devices=1)
    found, why = standing_jobs.classify({"status": status, "message": message}, known)
    assert found is state
    assert why == reason or (why.startswith(reason) and reason.startswith("The image"))
