"""Cancel releases all pods and chips and keeps the record of the run. Delete removes only the record."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from launcher.k8s.client import Cluster
from tests.cluster.api import Api, Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_controllers import controllers
from tests.cluster.launching import KUEUE, LauncherCli, kuberay_removes_finalizers
from tests.cluster.replay import RecordingReplayer, follow_as


def submitted(cli: LauncherCli, plane: ControlPlane, kind: str, **values: Any) -> tuple[Object, str]:
    file = cli.values(kind, **values)
    assert cli("submit", "-f", file, "--detach", "--force").code == 0
    (run,) = cli.runs(plane.api)
    return run, file


def pods(cli: LauncherCli, admin: Api) -> list[Object]:
    return admin.items(f"/api/v1/namespaces/{cli.namespace}/pods?labelSelector=slipway.dev/run%3Ddemo")


STATES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "queued": ("job-set", "quota-in-use-by-others", "waiting-2", {"kind": "Workload", "QuotaReserved": "False"}),
    "admitted": ("ray-job", "rayjob-succeeds", "good", {"kind": "Workload", "Admitted": "True"}),
    "running": ("job-set", "three-then-one-and-two", "slices-3", {"kind": "Workload", "PodsReady": "True"}),
    "running-ray": ("ray-job", "rayjob-succeeds", "good", {"kind": "RayJob", "jobStatus": "RUNNING"}),
}


@pytest.mark.parametrize("state", STATES)
def test_a_cancelled_run_holds_nothing_and_can_resume(
    state: str, cli: LauncherCli, control_plane: ControlPlane, admin: Api
) -> None:
    kind, recording, of, upto = STATES[state]
    run, file = submitted(cli, control_plane, kind)
    replayer: RecordingReplayer = follow_as(control_plane, recording, run, run=of)
    replayer.step_past(**upto)
    here = ("demo", "-n", cli.namespace)
    refused = cli("delete", *here, "--yes")
    was = state.removesuffix("-ray")
    assert (refused.code, refused.err) == (
        1,
        f'Error: The run "demo" is {was}.\nHint: Cancel it first: launcher cancel demo -n {cli.namespace}\n',
    )
    with controllers(control_plane, cli.namespace), kuberay_removes_finalizers(admin, cli.namespace):
        done = cli("cancel", *here, "-o", "json")
        # On a busy machine, it also reports that it waits.
        lines = [line for line in done.err.splitlines() if not line.startswith("Waiting for the run ")]
        expected = [f'Cancelling the run "demo" ({cli.target})…', 'The run "demo" is cancelled.']
        assert (done.code, lines) == (0, expected), done.err
        assert (done.json["state"], done.json["reason"]) == ("cancelled", "Cancelled.")
        assert done.json["ended"]
        assert pods(cli, admin) == []
        workloads = admin.items(f"{KUEUE.format(cli.namespace)}/workloads")
        (workload,) = [w for w in workloads if w["metadata"]["ownerReferences"][0]["uid"] == run["metadata"]["uid"]]
        assert workload["spec"]["active"] is False
        assert "admission" not in workload["status"]
        kept = admin.get(path_of(run))
        assert kept["metadata"]["uid"] == run["metadata"]["uid"]

        again = cli("cancel", *here)
        assert (again.code, again.err) == (0, 'The run "demo" is cancelled.\n')
        assert admin.get(path_of(run)) == kept

        resumed = cli("submit", "-f", file, "--detach", "-o", "json")
        assert (resumed.code, resumed.json["state"], resumed.json["attempt"]) == (0, "queued", 2)
        message = 'The run "demo" was cancelled; it continues from its last checkpoint, if it wrote one, as attempt 2.'
        assert message in resumed.err.splitlines()


def test_a_run_is_cancelled_before_kueue_has_seen_it(cli: LauncherCli, control_plane: ControlPlane, admin: Api) -> None:
    run, _ = submitted(cli, control_plane, "job-set")
    replayer = follow_as(control_plane, "three-then-one-and-two", run)
    with controllers(control_plane, cli.namespace):
        later = threading.Timer(0.5, lambda: replayer.step_past("Workload", QuotaReserved="True"))
        later.start()
        done = cli("cancel", "demo", "-n", cli.namespace, "-o", "json")
        later.join()
        assert (done.code, done.json["state"]) == (0, "cancelled")
    assert pods(cli, admin) == []


def test_a_run_that_is_being_cancelled_stops_before_it_resumes(
    cli: LauncherCli, control_plane: ControlPlane, admin: Api
) -> None:
    """The launcher that cancelled it was killed after the first step."""
    run, file = submitted(cli, control_plane, "job-set")
    follow_as(control_plane, "three-then-one-and-two", run).step_past("Workload", PodsReady="True")
    admin.merge(path_of(run), {"metadata": {"annotations": {"slipway.dev/cancelled": "2026-01-02T03:04:05Z"}}})
    preview = cli("submit", "-f", file, "--dry-run")
    assert (preview.code, preview.err) == (0, 'Would resume the run "demo" as attempt 2.\n')
    assert len(pods(cli, admin)) == 6
    with controllers(control_plane, cli.namespace):
        again = cli("submit", "-f", file, "--detach", "-o", "json")
    assert (again.code, again.json["attempt"], pods(cli, admin)) == (0, 2, [])
    assert 'The run "demo" was cancelled; it continues from its last checkpoint' in again.err


def test_a_run_without_a_queue_is_suspended(cli: LauncherCli, control_plane: ControlPlane, admin: Api) -> None:
    run, _ = submitted(cli, control_plane, "job-set", queue={"name": ""}, team={"name": ""})
    assert "kueue.x-k8s.io/queue-name" not in run["metadata"]["labels"]
    with controllers(control_plane, cli.namespace):
        done = cli("cancel", "demo", "-n", cli.namespace, "-o", "json")
    assert (done.code, done.json["state"]) == (0, "cancelled")
    assert admin.get(path_of(run))["spec"]["suspend"] is True


def test_a_run_without_a_workload_is_not_cancelled_yet(
    cli: LauncherCli, control_plane: ControlPlane, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kueue is installed but down. It would start the run when it is up again, so the cancel is complete only when the
    Workload exists and is deactivated."""
    run, _ = submitted(cli, control_plane, "job-set")
    admin.merge(path_of(run), {"spec": {"suspend": True}})  # done by Kueue's webhook; its controller is down
    monkeypatch.setattr("launcher.backends.kubernetes.backend._WORKLOAD_SECONDS", 1.0)
    monkeypatch.setattr("launcher.backends.kubernetes.polling.QUIET_SECONDS", 0.0)
    here = ("demo", "-n", cli.namespace)
    for _ in range(2):  # the second call finds the annotation of the first one
        done = cli("cancel", *here)
        assert (done.code, done.err.splitlines()[1:]) == (
            1,
            [
                'Waiting for Kueue to create the Workload of the run "demo", to deactivate it…',
                'Error: The run "demo" holds nothing now, but is not cancelled yet: Kueue has not created its '
                "Workload, which would have to be deactivated, and starts the run once it creates it.",
                f"Hint: To remove the run: launcher delete demo -n {cli.namespace}. To keep its record, repeat "
                f"launcher cancel demo -n {cli.namespace} when Kueue is running again (see launcher doctor).",
            ],
        )
        status = cli("status", *here, "-o", "json").json
        assert (status["state"], status["reason"]) == ("queued", "It is being cancelled.")
    # Kueue is up again, and about to start the run.
    replayer = follow_as(control_plane, "three-then-one-and-two", run)
    replayer.step_past("Workload", QuotaReserved="True")
    with controllers(control_plane, cli.namespace):
        done = cli("cancel", *here, "-o", "json")
    assert (done.code, done.json["state"]) == (0, "cancelled")
    (workload,) = admin.items(f"{KUEUE.format(cli.namespace)}/workloads")
    assert workload["spec"]["active"] is False


@pytest.mark.parametrize("then", ["delete", "submit"])
def test_a_cancelled_run_without_a_workload_can_be_deleted_and_replaced(
    then: str, cli: LauncherCli, control_plane: ControlPlane, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, file = submitted(cli, control_plane, "job-set")  # not suspended, because no webhook of Kueue runs
    monkeypatch.setattr("launcher.backends.kubernetes.backend._WORKLOAD_SECONDS", 1.0)
    assert cli("cancel", "demo", "-n", cli.namespace).code == 1
    assert admin.get(path_of(run))["spec"]["suspend"] is True
    if then == "delete":
        done = cli("delete", "demo", "--yes", "-n", cli.namespace)
        assert (done.code, cli.runs(admin)) == (0, []), done.err
        return
    done = cli("submit", "-f", file, "--detach", "-o", "json")
    assert (done.code, done.json["attempt"], done.json["state"]) == (0, 2, "queued"), done.err
    assert 'The run "demo" was cancelled; it continues from its last checkpoint' in done.err


def test_cancel_does_not_change_a_run_that_has_ended(cli: LauncherCli, control_plane: ControlPlane, admin: Api) -> None:
    run, _ = submitted(cli, control_plane, "job-set")
    assert cli("submit", "-f", cli.values("ray-job", name="other"), "--detach").code == 0
    follow_as(control_plane, "three-then-one-and-two", run).step_to()
    ended = admin.get(path_of(run))
    here = ("demo", "-n", cli.namespace)
    done = cli("cancel", *here)
    assert (done.code, done.err) == (0, 'The run "demo" has already succeeded.\n')
    assert admin.get(path_of(run)) == ended
    deleted = cli("delete", *here, "--yes")
    message = f'Deleting the run "demo" ({cli.target})…\nThe run "demo" is deleted.\n'
    assert (deleted.code, deleted.err) == (0, message)
    assert {"demo", "other"} & {run["metadata"]["name"] for run in cli.runs(admin)} == {"other"}
    again = cli("delete", *here, "--yes")
    assert again.code == 1
    assert again.err.startswith(f'Error: The run "demo" was not found in the {cli.target}.')


def test_cancel_does_not_change_the_attempt_that_replaced_the_run(
    cli: LauncherCli, control_plane: ControlPlane, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user submits the run again between the request that reads it and the one that cancels it."""
    run, _ = submitted(cli, control_plane, "job-set")
    patch = Cluster.patch

    def replace_first(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(Cluster, "patch", patch)
        admin.delete(path_of(run))
        admin.create(
            {key: run[key] for key in ("apiVersion", "kind", "spec")}
            | {"metadata": {key: run["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}}
        )
        return patch(*arguments, **named)

    monkeypatch.setattr(Cluster, "patch", replace_first)
    done = cli("cancel", "demo", "-n", cli.namespace)
    assert (done.code, done.err.splitlines()[-1]) == (
        1,
        'Error: The run "demo" was submitted again while it was cancelled; the new attempt is not changed.',
    )
    (now,) = cli.runs(admin)
    assert now["metadata"]["uid"] != run["metadata"]["uid"]
    assert "slipway.dev/cancelled" not in now["metadata"]["annotations"]


def test_pods_that_do_not_end_are_reported(
    cli: LauncherCli, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No controller removes the pods."""
    run, _ = submitted(cli, control_plane, "job-set", run={"graceSeconds": 0})
    follow_as(control_plane, "three-then-one-and-two", run).step_past("Workload", PodsReady="True")
    monkeypatch.setattr("launcher.backends.kubernetes.backend._FREED_SECONDS", 0.3)
    done = cli("cancel", "demo", "-n", cli.namespace)
    assert done.code == 1
    assert done.err.splitlines()[1:] == [
        'Error: The run "demo" was asked to stop, but still holds 6 pods.',
        f"Hint: To keep waiting: launcher cancel demo -n {cli.namespace}. To find the cause: launcher explain demo -n "
        f"{cli.namespace}",
    ]
    status = cli("status", "demo", "-n", cli.namespace, "-o", "json").json
    assert (status["state"], status["reason"]) == ("running", "It is being cancelled.")
