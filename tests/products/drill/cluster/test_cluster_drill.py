"""`launcher drill` with a real API server: what it needs, what it refuses, and what is left when it is interrupted.

Kueue, JobSet and the kubelet are those of tests/e2e/fakes, because the real ones are not available here. Their trainer
trains nothing; tests/e2e/test_drill.py has the same drill for a cluster with the real ones.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.products.drill.cluster import outage
from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import JOB_SETS, LauncherCli, until
from tests.e2e.fakes.cluster import controllers
from tests.products.drill.broken_code import copy_of_the_code, edit

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
JOB_SET = "jobset.x-k8s.io"
OUTAGE = 6.0
"""Seconds without the API server: three times as long as the launcher waits before it reads the status again."""
RULES = [
    {"apiGroups": [JOB_SET], "resources": ["jobsets"], "verbs": ["get", "list", "create", "patch", "delete"]},
    {
        "apiGroups": ["kueue.x-k8s.io"],
        "resources": ["workloads", "localqueues", "clusterqueues"],
        "verbs": ["get", "list", "patch"],
    },
    {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
]


@pytest.fixture
def cli(control_plane: ControlPlane, tmp_path: Path) -> Iterator[LauncherCli]:
    """The launcher of an administrator, in a namespace with a queue that two trainings do not fit into."""
    yield from launcher_in(control_plane, tmp_path)


@pytest.fixture(scope="module")
def equipped() -> Iterator[ControlPlane]:
    """A cluster of this module, with the fake controllers."""
    with ControlPlane.start(with_crds=True) as plane, controllers(plane):
        yield plane


@pytest.fixture
def trained(equipped: ControlPlane, tmp_path: Path) -> Iterator[LauncherCli]:
    """The same as `cli`, in the cluster with the fake controllers."""
    yield from launcher_in(equipped, tmp_path)


def launcher_in(plane: ControlPlane, folder: Path) -> Iterator[LauncherCli]:
    namespace = f"drill-{secrets.token_hex(3)}"
    add_queue(plane, namespace)
    made = LauncherCli(plane.admin, namespace, folder)
    yield made
    made.close()
    for kind in ("localqueues", "clusterqueues", "workloadpriorityclasses"):
        for each in plane.api.items(f"{KUEUE}/{kind}"):
            if each["metadata"]["name"].startswith(namespace):
                place = f"namespaces/{namespace}/" if kind == "localqueues" else ""
                plane.api.delete(f"{KUEUE}/{place}{kind}/{each['metadata']['name']}")


def add_queue(plane: ControlPlane, namespace: str) -> None:
    api = plane.api
    plane.add_namespace(namespace)
    kueue = "kueue.x-k8s.io/v1beta2"
    resources = [{"name": "cpu", "nominalQuota": 3}, {"name": "memory", "nominalQuota": "12Gi"}]
    flavor = {"name": "cpu", "resources": resources}
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}],
    }
    claim = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fake",
    }
    objects: list[Object] = [
        {"apiVersion": kueue, "kind": "ResourceFlavor", "metadata": {"name": "cpu"}, "spec": {}},
        {"apiVersion": kueue, "kind": "ClusterQueue", "metadata": {"name": namespace}, "spec": spec},
        {
            "apiVersion": kueue,
            "kind": "LocalQueue",
            "metadata": {"name": namespace, "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        },
        *(
            {
                "apiVersion": kueue,
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": f"{namespace}-{name}"},
                "value": value,
            }
            for name, value in (("low", 1), ("high", 1000))
        ),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "runs", "namespace": namespace},
            "spec": claim,
        },
    ]
    for obj in objects:
        api.ensure(obj)


def add_workload(api: Api, namespace: str, name: str) -> None:
    """Create the Workload of a run of another user, as Kueue does when it admits the run."""
    container = {"name": "main", "image": "example.invalid/x:1", "resources": {"requests": {"cpu": 1}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    api.create(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"queueName": namespace, "podSets": [pods]},
        }
    )
    api.merge(f"{KUEUE}/clusterqueues/{namespace}/status", {"status": {"admittedWorkloads": 1, "pendingWorkloads": 0}})


def options(cli: LauncherCli, *more: str) -> list[str]:
    file = cli.folder / "drill.yaml"
    tree = {
        "run": {"kind": "job-set", "graceSeconds": 1},
        "queue": {"name": cli.namespace, "priority": ""},
        "slice": {"accelerator": "cpu", "hosts": 2},
        "image": {"repository": "example.invalid/slipway", "tag": "1.0.0"},
        "storage": {"kind": "pvc", "claim": "runs"},
        "train": {"steps": 120, "checkpoint_period": 20},
    }
    file.write_text(json.dumps(tree))
    return ["drill", "-f", str(file), "-n", cli.namespace, *more]


def left(cli: LauncherCli, api: Api) -> list[str]:
    """Return what is left of drills in the namespace."""
    paths = [JOB_SETS.format(cli.namespace), f"{KUEUE}/namespaces/{cli.namespace}/workloads"]
    paths.append(f"/api/v1/namespaces/{cli.namespace}/pods")
    return [each["metadata"]["name"] for path in paths for each in api.items(path)]


def test_missing_rights_are_named_with_a_role(cli: LauncherCli, control_plane: ControlPlane) -> None:
    user = f"user-{cli.namespace}"
    theirs = LauncherCli(control_plane.kubeconfig_for(user, namespace=cli.namespace), cli.namespace, cli.folder)
    rbac = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "runs", "namespace": cli.namespace}}
    binding = {
        **role,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "runs"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": rbac}],
    }
    done = theirs(*options(cli, "--yes"))
    assert done.code == 1
    assert done.err.startswith(
        f"Error: In the namespace {cli.namespace} you may not get jobsets of {JOB_SET}, list jobsets of {JOB_SET}, "
    ), done.err
    control_plane.api.create({**role, "rules": RULES})
    control_plane.api.create(binding)
    until(lambda: "delete pods" in theirs(*options(cli, "--yes", "--fault", "pod-killed")).err, 30)
    done = theirs(*options(cli, "--yes", "--fault", "pod-killed"))
    assert done.err.splitlines()[0] == (
        f"Error: In the namespace {cli.namespace} you may not delete pods, which a drill needs."
    )
    assert "verbs: [delete]" in done.err
    done = theirs(*options(cli, "--yes", "--fault", "process-killed"))
    assert done.err.splitlines()[0] == (
        f"Error: In the namespace {cli.namespace} you may not get pods/exec, create pods/exec, which a drill needs."
    )
    assert left(cli, control_plane.api) == []


def test_runs_of_others_are_reported_and_not_preempted(cli: LauncherCli, control_plane: ControlPlane) -> None:
    add_workload(control_plane.api, cli.namespace, "theirs")
    done = cli(*options(cli, "--yes", "--fault", "preempted"))
    assert done.code == 1
    assert f"Other runs are in the queue {cli.namespace}: theirs. A run of a high priority could preempt" in done.err
    done = cli(*options(cli))
    assert done.code == 2, done.err
    assert f"Other runs are in the queue {cli.namespace}: theirs. The drill takes quota" in " ".join(done.err.split())
    assert "preempted is left out: " in done.err
    assert "Confirmation needs a terminal; to drill without confirmation, use --yes." in done.err
    assert cli.runs(control_plane.api) == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.steps=50", "Error: A drill needs at least 3 periods of checkpoints"),
        ("train.enable_checkpointing=false", "Error: A drill needs a training with checkpoints"),
        ("queue.name=none", "Error: The queue none does not exist in the namespace"),
    ],
)
def test_an_impossible_drill_creates_nothing(
    cli: LauncherCli, control_plane: ControlPlane, setting: str, message: str
) -> None:
    done = cli(*options(cli, "--yes", "--set", setting))
    assert done.code == 1
    assert message in done.err
    assert left(cli, control_plane.api) == []


def test_a_drill_passes_and_leaves_nothing(
    trained: LauncherCli, equipped: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "SECONDS", OUTAGE)
    done = trained(*options(trained, "--yes", "-o", "json"))
    print(done.out, done.err)  # pytest shortens the text of an assertion
    assert done.code == 0
    certificate = json.loads(done.out)
    rows = {row["fault"]: row for row in certificate["faults"]}
    assert list(rows) == ["process-killed", "pod-killed", "evicted", "preempted", "api-server-gone", "webhook-down"]
    assert rows["process-killed"]["steps_lost"] > 0
    assert {name: row["in_place"] for name, row in rows.items()} == {
        **{"process-killed": True, "pod-killed": False, "evicted": False, "preempted": False},
        **{"api-server-gone": None, "webhook-down": None},
    }
    assert rows["evicted"]["steps_lost"] == rows["preempted"]["steps_lost"] == 0
    assert rows["pod-killed"]["steps_lost"] > 0
    assert "failed" in rows["pod-killed"]["notified"]
    assert "preempted" in rows["preempted"]["notified"]
    until(lambda: left(trained, equipped.api) == [])  # the Workload of a deleted run ends a moment later


def test_a_drill_fails_if_the_command_does_not_try_again(
    trained: LauncherCli, equipped: ControlPlane, tmp_path: Path
) -> None:
    """A guard of the product is broken, as in test_guards.py."""
    code = copy_of_the_code(tmp_path)
    edit(code / "launcher/cli/follow.py", "except Unreachable as error:", "except ZeroDivisionError as error:")
    edit(code / "launcher/products/drill/cluster/outage.py", "SECONDS = 60.0", f"SECONDS = {OUTAGE}")
    process = subprocess.run(
        [sys.executable, "-m", "launcher", *options(trained, "--yes", "--fault", "api-server-gone", "-o", "json")],
        env={**os.environ, **trained.env, "PYTHONPATH": str(code)},
        cwd=code,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1, process.stdout + process.stderr
    (row,) = json.loads(process.stdout)["faults"]
    assert row["problems"][0].startswith("launcher attach ended with the exit code 1: "), row
    assert "does not connect to the API server" in row["problems"][0]
    assert 'launcher attach reported "The run continues; retrying." 0 times instead of once.' in row["problems"]
    assert row["identical"]
    until(lambda: left(trained, equipped.api) == [])


@pytest.mark.parametrize("moment", ["hook", "undisturbed", "urgent"])
def test_an_interrupted_drill_leaves_nothing(trained: LauncherCli, equipped: ControlPlane, moment: str) -> None:
    process = trained.start(*options(trained, "--yes", "--fault", "preempted"))
    until(lambda: any(run["metadata"]["name"].endswith(f"-{moment}") for run in trained.runs(equipped.api)), 120)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)  # the second one is ignored
    _, err = process.communicate(timeout=200)
    assert process.returncode == 130, err
    assert "Removing the runs of the drill." in err
    until(lambda: left(trained, equipped.api) == [])  # the Workload of a deleted run ends a moment later
