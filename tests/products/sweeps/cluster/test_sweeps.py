"""Sweeps with a real API server: one object for each combination, or none; from the submit to the end."""

from __future__ import annotations

import itertools
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes import reader
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.k8s.errors import ClusterError
from tests.cluster.api import Api, Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_controllers import controllers, queued_workload
from tests.cluster.launching import LauncherCli, kuberay_removes_finalizers
from tests.cluster.proxy import Proxy
from tests.cluster.replay import follow_as

SWEEP, VALUES = "slipway.dev/sweep", "slipway.dev/sweep-values"
RATES, SIZES = ("1e-4", "3e-4", "1e-3"), ("1", "2")
SIX = ("--sweep", f"train.learning_rate={','.join(RATES)}", "--sweep", f"train.per_device_batch_size={','.join(SIZES)}")


def by_name(cli: LauncherCli, admin: Api) -> dict[str, Object]:
    return {run["metadata"]["name"]: run for run in cli.runs(admin)}


def config(run: Object) -> Any:
    if run["kind"] == "RayJob":
        template = run["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    else:
        template = run["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return json.loads(template["metadata"]["annotations"]["slipway.dev/run-config"])


def admit_none(cli: LauncherCli, admin: Api) -> None:
    """Create the Workloads of all runs, as Kueue does. They are queued."""
    for run in cli.runs(admin):
        admin.create(queued_workload(run, "multislice"))


def test_one_object_for_each_combination(cli: LauncherCli, admin: Api) -> None:
    file = cli.values("ray-job", "lr")
    dry = cli("submit", "-f", file, *SIX, "--dry-run", "-o", "json")
    assert (dry.code, len(dry.json), cli.runs(admin)) == (0, 6, [])
    assert dry.err.count("the API server accepts it") == 6

    done = cli("submit", "-f", file, *SIX, "--detach", "-o", "json")
    assert done.code == 0
    assert 'The sweep "lr" was submitted: 6 runs.' in done.err
    runs = by_name(cli, admin)
    assert sorted(runs) == [f"lr-{number}" for number in range(1, 7)]
    for number, (rate, size) in enumerate(itertools.product(RATES, SIZES), start=1):
        run = runs[f"lr-{number}"]
        assert run["metadata"]["labels"][SWEEP] == "lr"
        swept = {"train.learning_rate": float(rate), "train.per_device_batch_size": int(size)}
        assert json.loads(run["metadata"]["annotations"][VALUES]) == swept
        assert config(run)["run"]["name"] == f"lr-{number}"
        assert config(run)["train"]["learning_rate"] == float(rate)
        assert config(run)["train"]["per_device_batch_size"] == int(size)
        assert done.json[number - 1]["sweep_values"] == swept
    assert [status["name"] for status in done.json] == sorted(runs)
    assert config(runs["lr-1"]) == dry.json[0]

    again = cli("submit", "-f", file, *SIX, "--detach")
    assert (again.code, "6 already queued." in again.err) == (0, True)
    assert {name: run["metadata"]["uid"] for name, run in runs.items()} == {
        name: run["metadata"]["uid"] for name, run in by_name(cli, admin).items()
    }


def test_a_sweeps_name_selects_only_its_runs(cli: LauncherCli, admin: Api, control_plane: ControlPlane) -> None:
    file = cli.values("job-set", "lr")
    assert cli("submit", "-f", file, *SIX, "--detach").code == 0
    for other in ("lr-9", "lone"):  # these belong to no sweep, although one name looks like it
        assert cli("submit", "-f", file, "--name", other, "--detach").code == 0
    admit_none(cli, admin)

    here = ("-n", cli.namespace)
    shown = cli("status", "lr", *here)
    lines = shown.out.splitlines()
    assert lines[0].split() == ["RUN", "learning_rate", "per_device_batch_size", "STATE"]
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["lr-1", "0.0001", "1"],
        ["lr-2", "0.0001", "2"],
        ["lr-3", "0.0003", "1"],
    ]
    assert lines[-1] == "sweep lr: 6 queued"
    assert len(cli("list", "--sweep", "lr", "-o", "json", *here).json) == 6
    assert len(cli("list", "-o", "json", *here).json) == 8
    logs = cli("logs", "lr", *here)
    assert (logs.code, logs.out) == (1, "")
    assert [f'The run "lr-{n}" is queued and has written nothing yet.' in logs.err for n in range(1, 7)] == [True] * 6
    explained = cli("explain", "lr", "-o", "json", *here).json
    assert [each["name"] for each in explained] == [f"lr-{number}" for number in range(1, 7)]
    shell = cli("shell", "lr", *here, "--", "true")
    assert 'Error: "lr" is a sweep; this command needs one of its runs: lr-1 to lr-6.' in shell.err
    refused = cli("delete", "lr", "--yes", *here)
    assert (refused.code, "has not ended: lr-1, lr-2, lr-3, lr-4, lr-5 and lr-6" in refused.err) == (1, True)
    assert cli("wait", "lr", "--timeout", "0.2s", *here).code == 124

    with controllers(control_plane, cli.namespace):
        done = cli("cancel", "lr", *here)
    assert done.code == 0, done.err
    assert "Cancelling 6 of the 6 runs" in done.err
    assert "sweep lr: 6 cancelled" in done.err
    states = {run["name"]: run["state"] for run in cli("list", "-o", "json", *here).json}
    assert states == {**{f"lr-{number}": "cancelled" for number in range(1, 7)}, "lr-9": "queued", "lone": "queued"}

    # A later run has the same name as the sweep.
    assert cli("submit", "-f", file, "--detach").code == 0
    both = cli("status", "lr", *here)
    assert (both.code, "Use run/lr for the run, or sweep/lr for the sweep." in both.err) == (1, True)
    assert cli("status", "run/lr", "-o", "json", *here).json["name"] == "lr"
    assert len(cli("status", "sweep/lr", "-o", "json", *here).json) == 6
    assert cli("delete", "sweep/lr", "--yes", *here).code == 0
    assert sorted(by_name(cli, admin)) == ["lone", "lr", "lr-9"]


def test_a_launcher_killed_in_the_middle_is_completed_by_the_next(cli: LauncherCli, admin: Api) -> None:
    rates = ",".join(f"{number}e-6" for number in range(1, 81))
    sweep = ("submit", "-f", cli.values("job-set", "lr"), "--sweep", f"train.learning_rate={rates}", "--detach")
    process = cli.start(*sweep)
    while not cli.runs(admin):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    first = by_name(cli, admin)
    assert 0 < len(first) < 80

    done = cli(*sweep)
    assert done.code == 0, done.err
    assert f"{80 - len(first)} submitted, {len(first)} already queued." in done.err
    runs = by_name(cli, admin)
    assert len(runs) == 80
    assert {run["metadata"]["labels"][SWEEP] for run in runs.values()} == {"lr"}
    assert {name: runs[name]["metadata"]["uid"] for name in first} == {
        name: run["metadata"]["uid"] for name, run in first.items()
    }
    assert len({config(run)["train"]["learning_rate"] for run in runs.values()}) == 80


def test_one_bad_combination_creates_nothing(cli: LauncherCli, admin: Api) -> None:
    file = cli.values("job-set", "lr")
    broken = cli("submit", "-f", file, "--sweep", "train.steps=10,20,-1", "--detach")
    assert (broken.code, broken.err) == (1, "Error: --sweep train.steps: train.steps is -1; it must be at least 1.\n")
    assert cli.runs(admin) == []

    # Only the API server has this information: another run has the name of the third combination.
    assert cli("submit", "-f", file, "--name", "lr-3", "--detach").code == 0
    (taken,) = cli.runs(admin)
    refused = cli("submit", "-f", file, *SIX, "--detach")
    assert (refused.code, list(by_name(cli, admin))) == (1, ["lr-3"])
    assert 'Error: The run "lr-3" already exists; it does not belong to a sweep.' in refused.err
    admin.merge(path_of(taken), {"metadata": {"labels": {"slipway.dev/run": None}}})
    refused = cli("submit", "-f", file, *SIX, "--detach")
    assert (refused.code, list(by_name(cli, admin))) == (1, ["lr-3"])
    assert 'The JobSet "lr-3" already exists' in refused.err


def test_a_list_of_names_that_is_out_of_date_or_refused(
    cli: LauncherCli, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep finds the unused names with one list. If that list is forbidden, each name is looked up.

    If it misses a run that another client has just created, the dry run of a shape finds it before anything is created.
    A run without a dry run of its own is found when it is created: it is left as it is, and reported.
    """
    file = cli.values("job-set", "lr")
    monkeypatch.setattr(reader, "used_names", lambda _: set())  # as if another client created the third run afterwards
    assert cli("submit", "-f", file, "--name", "lr-3", "--detach").code == 0
    # Each number of slices is a shape of its own, so that the third run has a dry run.
    refused = cli("submit", "-f", file, "--sweep", "slice.count=1,2,3", "--detach")
    assert (refused.code, list(by_name(cli, admin))) == (1, ["lr-3"])
    assert 'Error: The run "lr-3" already exists; it does not belong to a sweep.' in refused.err

    # All six have one shape. With one thread only the first has a dry run, so that the others are created.
    monkeypatch.setattr(KubernetesBackend, "max_parallel", 1)
    sweep = ("submit", "-f", file, *SIX, "--detach")
    late = cli(*sweep)
    runs = by_name(cli, admin)
    assert (late.code, sorted(runs)) == (1, [f"lr-{number}" for number in range(1, 7)])
    assert 'Error: The run "lr-3" already exists; it does not belong to a sweep.' in late.err
    assert [name for name, run in runs.items() if SWEEP not in run["metadata"]["labels"]] == ["lr-3"]
    for run in runs.values():
        admin.delete(path_of(run))

    def forbidden(_: object) -> set[str]:
        raise ClusterError("You may not list jobsets.", status=403)

    monkeypatch.setattr(reader, "used_names", forbidden)
    done = cli(*sweep)
    assert (done.code, len(cli.runs(admin))) == (0, 6), done.err


def test_runs_of_the_same_shape_share_a_dry_run(cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path) -> None:
    """At most one dry run for each thread, which may begin before the first has ended."""
    rates = ",".join(f"{number}e-5" for number in range(1, 25))
    with Proxy(control_plane) as proxy:
        proxied = LauncherCli(proxy.kubeconfig(tmp_path, cli.namespace), cli.namespace, tmp_path)
        done = proxied(
            "submit", "-f", cli.values("job-set", "lr"), "--detach", "--sweep", f"train.learning_rate={rates}"
        )
        assert done.code == 0, done.err
        creates = [request for request in proxy.requests if request.startswith("POST ") and "jobsets" in request]
    dry_runs = [request for request in creates if "dryRun" in request]
    assert len(creates) - len(dry_runs) == 24
    assert 1 <= len(dry_runs) <= KubernetesBackend.max_parallel


def test_a_quota_that_is_used_up_in_the_middle_keeps_what_was_made(cli: LauncherCli, admin: Api) -> None:
    quota: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "four", "namespace": cli.namespace},
        "spec": {"hard": {"count/jobsets.jobset.x-k8s.io": "4"}},
    }
    admin.create(quota)
    # The API server counts with this status. The controller manager would initialize it, but finds new kinds only from
    # time to time.
    hard = quota["spec"]["hard"]
    admin.merge(f"{path_of(quota)}/status", {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
    sweep = ("submit", "-f", cli.values("job-set", "lr"), *SIX, "--detach")
    done = cli(*sweep)
    assert (done.code, len(cli.runs(admin))) == (1, 4), done.err
    assert "4 of the 6 runs of the sweep were created; submit it again to create the others." in done.err
    admin.delete(path_of(quota))
    done = cli(*sweep)
    assert (done.code, len(cli.runs(admin))) == (0, 6)
    assert "2 submitted, 4 already queued." in done.err


def test_a_sweep_ends_when_all_its_runs_have_and_its_failed_runs_are_resumed(
    cli: LauncherCli, admin: Api, control_plane: ControlPlane
) -> None:
    file = cli.values("ray-job", "lr")
    sweep = ("submit", "-f", file, "--sweep", "train.learning_rate=1e-4,3e-4")
    assert cli(*sweep, "--detach").code == 0
    runs = by_name(cli, admin)
    follow_as(control_plane, "rayjob-succeeds", runs["lr-1"]).step_to()
    follow_as(control_plane, "rayjob-fails", runs["lr-2"]).step_to()

    waited = cli("wait", "lr", "-n", cli.namespace)
    assert waited.code == 1
    assert re.search(r"lr-1 +0.0001 +succeeded", waited.out)
    assert re.search(r"lr-2 +0.0003 +failed", waited.out)
    assert "sweep lr: 1 succeeded, 1 failed" in waited.out

    with kuberay_removes_finalizers(admin, cli.namespace):
        again = cli(*sweep, "--detach", "-o", "json")
    assert again.code == 0, again.err
    assert "1 resumed, 1 already succeeded." in again.err
    assert [(run["state"], run["attempt"]) for run in again.json] == [("succeeded", 1), ("queued", 2)]
    # A run that is submitted alone still belongs to the sweep.
    second = by_name(cli, admin)["lr-2"]
    admin.merge(f"{path_of(second)}/status", {"status": {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}})
    alone = cli("submit", "-f", file, "--name", "lr-2", "--set", "train.learning_rate=3e-4", "--detach")
    assert (alone.code, "as attempt 3" in alone.err) == (0, True)
    third = by_name(cli, admin)["lr-2"]["metadata"]
    assert (third["labels"][SWEEP], json.loads(third["annotations"][VALUES])) == ("lr", {"train.learning_rate": 3e-4})
