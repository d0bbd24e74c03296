"""A run is found even if other targets do not work. Names cannot change the path of a request."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from launcher import api as launcher_api
from launcher.backends.local.record import Record, write_record
from launcher.k8s.target import Target
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import LauncherCli


def local_run(cli: LauncherCli, name: str) -> None:
    folder = cli.folder / "home" / "runs" / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"run": {"name": name}, "train": {"steps": 3}}))
    write_record(folder, Record(name, "default", "id", 1, "succeeded", "2026-11-01T10:00:00Z"))


def ray_cluster(namespace: str, name: str) -> dict[str, Any]:
    """A RayCluster as from charts/ray-cluster, with token authentication, which KubeRay has not processed yet."""
    template = {"spec": {"containers": [{"name": "ray-head", "image": "example.invalid/ray:1"}]}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "authOptions": {"mode": "token"},
            "headGroupSpec": {"rayStartParams": {}, "template": template},
            "workerGroupSpecs": [],
        },
    }


@pytest.mark.parametrize("provisioned", [False, True])
def test_a_ray_cluster_without_its_token_hides_no_run(
    provisioned: bool, cli: LauncherCli, control_plane: ControlPlane, namespace: str
) -> None:
    made = control_plane.api.create(ray_cluster(namespace, "ours"))
    if provisioned:
        now = "2026-11-21T10:00:00Z"
        condition = {
            "type": "RayClusterProvisioned",
            "status": "True",
            "reason": "AllPodRunningAndReadyFirstTime",
            "message": "",
            "lastTransitionTime": now,
        }
        path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/ours/status"
        control_plane.api.request("PUT", path, {**made, "status": {"conditions": [condition]}})
    assert cli("submit", "-f", cli.values(), "--detach").code == 0
    for verb in ("status", "explain", "logs"):
        done = cli(verb, "demo", "-n", namespace)
        assert "Secret" not in done.err, done.err
    assert cli("status", "demo", "-n", namespace).code == 0
    shown = cli("status", "ours", "-n", namespace)
    assert (shown.code, "ours (namespace" in shown.out) == (0, True), shown.err
    if not provisioned:  # it cannot have a run yet
        assert f'The run "other" was not found in the cluster test, context admin, namespace {namespace}.' in (
            cli("status", "other", "-n", namespace).err
        )


@pytest.mark.parametrize("broken", ["{", "unreachable"])
def test_a_local_run_is_found_if_the_cluster_does_not_work(broken: str, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    server = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
    tree = {"clusters": [server], "contexts": [context], "users": [], "current-context": "c"}
    config.write_text(json.dumps(tree) if broken == "unreachable" else broken)
    cli = LauncherCli(config, "default", tmp_path)
    local_run(cli, "mine")
    assert cli("status", "mine").code == 0
    listed = cli("list")
    assert (listed.code, "mine" in listed.out, listed.err.count("Warning: ")) == (0, True, 1), listed.err
    assert "There are no runs" not in listed.err
    assert cli("status", "yours").code == 1


@pytest.mark.parametrize("name", ["../demo", "a/b", "", "run/", "demo?watch=1"])
def test_an_invalid_name_is_not_found(name: str, cli: LauncherCli) -> None:
    for verb in ("status", "cancel", "logs"):
        done = cli(verb, name, "-n", cli.namespace)
        expected = "Error: The run"
        if verb == "cancel" and "?" in name:
            expected = "Error: No run matches"
        elif verb == "logs" and name.startswith("."):
            expected = "Error: The folder"  # logs also reads a folder in which output is kept
        assert (done.code, done.err[: len(expected)]) == (1, expected), (verb, done.err)


def test_an_invalid_namespace(cli: LauncherCli) -> None:
    done = cli("list", "-n", "a/b")
    assert (done.code, done.err) == (
        1,
        'Error: "a/b" is not a valid namespace: use a name like team-a (a-z, 0-9 and -, at most 63 characters).\n',
    )


def test_all_namespaces_are_those_of_a_cluster(cli: LauncherCli) -> None:
    for option in (["--local"], ["-n", "default"]):
        assert cli("list", "-A", *option).code == 2


def test_waiting_survives_a_login_that_fails_for_a_while(
    cli: LauncherCli, control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a laptop that wakes up before its network, the credential plugin fails for some seconds."""
    account = "research"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "research", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    control_plane.api.create(binding)
    away = tmp_path / "away"
    plugin = tmp_path / "plugin"
    # The token has already expired, so the plugin runs again for each request.
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "token": control_plane.service_account_token(namespace, account),
            "expirationTimestamp": "2026-01-01T00:00:00Z",
        },
    }
    plugin.write_text(
        f"#!/bin/sh\n[ -e {away} ] && {{ echo no such host >&2; exit 1; }}\necho '{json.dumps(credential)}'\n"
    )
    plugin.chmod(0o755)
    tree = json.loads(control_plane.kubeconfig_for(account, namespace=namespace).read_text())
    execute = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    tree["users"][0]["user"] = {"exec": execute}
    config = tmp_path / "plugin.kubeconfig"
    config.write_text(json.dumps(tree))
    sleeper = LauncherCli(config, namespace, tmp_path)
    file = sleeper.values(queue={"name": ""}, team={"name": ""})
    assert sleeper("submit", "-f", file, "--detach", "--force").code == 0
    sleeper.use_environment(monkeypatch)
    ended: list[Any] = []
    waiting = threading.Thread(
        target=lambda: ended.append(launcher_api.wait("demo", timeout=30, target=Target(namespace=namespace)))
    )
    waiting.start()
    time.sleep(1)
    away.touch()
    time.sleep(3)
    assert waiting.is_alive()
    away.unlink()
    (run,) = sleeper.runs(control_plane.api)
    finish(control_plane.api, run)
    waiting.join(20)
    assert [status.state for status in ended] == ["succeeded"]


def finish(api: Api, run: dict[str, Any]) -> None:
    """Write the status that JobSet writes at the end. Other tests replay recordings of whole runs."""
    done = {
        "type": "Completed",
        "status": "True",
        "reason": "AllJobsCompleted",
        "message": "jobset completed successfully",
        "lastTransitionTime": "2026-11-21T10:00:00Z",
    }
    meta = run["metadata"]
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{meta['namespace']}/jobsets/{meta['name']}/status"
    api.request("PUT", path, {**run, "status": {"conditions": [done], "restarts": 0, "terminalState": "Completed"}})


def test_init_finds_the_queue_and_the_values_of_the_newest_run(cli: LauncherCli, namespace: str) -> None:
    file = cli.folder / "launcher.yaml"
    assert cli("init", "-n", namespace, "--out", str(file)).code == 0
    tree = launcher_api.values([str(file)]).tree
    assert tree == {
        "run": {"kind": "ray-job"},
        "team": {"name": namespace, "namespace": namespace},
        "queue": {"name": "multislice"},
    }
    assert "# image:\n" in file.read_text()
    assert cli("submit", "-f", cli.values(), "--detach").code == 0
    again = cli("init", "-n", namespace, "--out", "-")
    assert (again.code, again.err) == (0, "")
    file.write_text(again.out)
    assert launcher_api.values([str(file)]).tree == {
        **tree,
        "run": {"kind": "job-set"},
        "image": {"repository": "example.invalid/slipway", "tag": "1.0.0"},
        "storage": {"kind": "gcsfuse", "bucket": "example-runs"},
    }


def test_init_in_a_namespace_without_a_queue(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """A member who sees no other namespace gets a sentence; an administrator gets the queues of other namespaces."""
    member = control_plane.kubeconfig_for("bob", [], namespace, "lab")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "queues", "namespace": namespace},
        "rules": [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues"], "verbs": ["list"]}],
    }
    control_plane.api.create(role)
    control_plane.api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "queues", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "queues"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
        }
    )
    result = LauncherCli(member, namespace, tmp_path)("init", "--out", "-")
    assert (result.code, result.out) == (1, "")
    assert f"There is no queue in the namespace {namespace}" in result.err
