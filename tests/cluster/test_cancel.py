"""Cancelling frees every pod and chip and keeps the record; deleting removes the record, and nothing else."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.cluster.api import Api, Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import KUEUE, LauncherCli, kuberay_lets_go
from tests.cluster.replay import RecordingReplayer, follow_as
from tests.cluster.stand_in import controllers


def submitted(desk: LauncherCli, plane: ControlPlane, kind: str, **values: Any) -> tuple[Object, str]:
    file = desk.values(kind, **values)
    assert desk("submit", "-f", file, "--detach", "--force").code == 0
    (run,) = desk.runs(plane.api)
    return run, file


def pods(desk: LauncherCli, admin: Api) -> list[Object]:
    return admin.items(f"/api/v1/namespaces/{desk.namespace}/pods?labelSelector=slipway.dev/run%3Ddemo")


STATES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "queued": ("job-set", "quota-in-use-by-others", "waiting-2", {"kind": "Workload", "QuotaReserved": "False"}),
    "admitted": ("ray-job", "rayjob-succeeds", "good", {"kind": "Workload", "Admitted": "True"}),
    "running": ("job-set", "three-then-one-and-two", "slices-3", {"kind": "Workload", "PodsReady": "True"}),
    "running-ray": ("ray-job", "rayjob-succeeds", "good", {"kind": "RayJob", "jobStatus": "RUNNING"}),
}


@pytest.mark.parametrize("state", STATES)
def test_a_cancelled_run_holds_nothing_and_can_go_on(
    state: str, desk: LauncherCli, control_plane: ControlPlane, admin: Api
) -> None:
    kind, recording, of, upto = STATES[state]
    run, file = submitted(desk, control_plane, kind)
    player: RecordingReplayer = follow_as(control_plane, recording, run, run=of)
    player.step_past(**upto)
    here = ("demo", "-n", desk.namespace)
    refused = desk("delete", *here, "--yes")
    was = state.removesuffix("-ray")
    assert (refused.code, refused.err) == (
        1,
        f'Error: The run "demo" is {was}.\nHint: Cancel it first: launcher cancel demo -n {desk.namespace}\n',
    )
    with controllers(control_plane, desk.namespace), kuberay_lets_go(admin, desk.namespace):
        done = desk("cancel", *here, "-o", "json")
        assert (done.code, done.err) == (
            0,
            f'Ending the run "demo" ({desk.where})…\nThe run "demo" is cancelled.\n',
        )
        assert (done.json["state"], done.json["reason"]) == ("cancelled", "Cancelled.")
        assert done.json["ended"]
        assert pods(desk, admin) == []
        workloads = admin.items(f"{KUEUE.format(desk.namespace)}/workloads")
        (workload,) = [w for w in workloads if w["metadata"]["ownerReferences"][0]["uid"] == run["metadata"]["uid"]]
        assert workload["spec"]["active"] is False
        assert "admission" not in workload["status"]
        kept = admin.get(path_of(run))
        assert kept["metadata"]["uid"] == run["metadata"]["uid"]

        again = desk("cancel", *here)
        assert (again.code, again.err) == (0, 'The run "demo" is cancelled.\n')
        assert admin.get(path_of(run)) == kept

        resumed = desk("submit", "-f", file, "--detach", "-o", "json")
        assert (resumed.code, resumed.json["state"], resumed.json["attempt"]) == (0, "queued", 2)
        said = 'The run "demo" was cancelled; it goes on from its last checkpoint, if it wrote one, as attempt 2.'
        assert said in resumed.err.splitlines()


def test_a_run_is_cancelled_before_kueue_has_seen_it(
    desk: LauncherCli, control_plane: ControlPlane, admin: Api
) -> None:
    run, _ = submitted(desk, control_plane, "job-set")
    player = follow_as(control_plane, "three-then-one-and-two", run)
    with controllers(control_plane, desk.namespace):
        later = threading.Timer(0.5, lambda: player.step_past("Workload", QuotaReserved="True"))
        later.start()
        done = desk("cancel", "demo", "-n", desk.namespace, "-o", "json")
        later.join()
        assert (done.code, done.json["state"]) == (0, "cancelled")
    assert pods(desk, admin) == []


def test_a_run_that_is_being_cancelled_is_ended_before_it_goes_on(
    desk: LauncherCli, control_plane: ControlPlane, admin: Api
) -> None:
    """Whoever cancelled it was killed after the first step."""
    run, file = submitted(desk, control_plane, "job-set")
    follow_as(control_plane, "three-then-one-and-two", run).step_past("Workload", PodsReady="True")
    admin.merge(path_of(run), {"metadata": {"annotations": {"slipway.dev/cancelled": "2026-01-02T03:04:05Z"}}})
    preview = desk("submit", "-f", file, "--dry-run")
    assert (preview.code, preview.err) == (0, 'Would resume the run "demo" as attempt 2.\n')
    assert len(pods(desk, admin)) == 6
    with controllers(control_plane, desk.namespace):
        again = desk("submit", "-f", file, "--detach", "-o", "json")
    assert (again.code, again.json["attempt"], pods(desk, admin)) == (0, 2, [])
    assert 'The run "demo" was cancelled; it goes on from its last checkpoint' in again.err


def test_a_run_without_a_queue_is_suspended(desk: LauncherCli, control_plane: ControlPlane, admin: Api) -> None:
    run, _ = submitted(desk, control_plane, "job-set", queue={"name": ""}, team={"name": ""})
    assert "kueue.x-k8s.io/queue-name" not in run["metadata"]["labels"]
    with controllers(control_plane, desk.namespace):
        done = desk("cancel", "demo", "-n", desk.namespace, "-o", "json")
    assert (done.code, done.json["state"]) == (0, "cancelled")
    assert admin.get(path_of(run))["spec"]["suspend"] is True


def test_a_run_that_kueue_has_not_seen_is_not_cancelled_for_good(
    desk: LauncherCli, control_plane: ControlPlane, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kueue is there, and down: it would start the run when it is back, so cancelling goes on till it is told."""
    run, _ = submitted(desk, control_plane, "job-set")
    admin.merge(path_of(run), {"spec": {"suspend": True}})  # Kueue's webhook does that, its controller is down
    monkeypatch.setattr("launcher.backends.kubernetes.backend._WORKLOAD_SECONDS", 0.2)
    monkeypatch.setattr("launcher.backends.kubernetes.waiting.QUIET_SECONDS", 0.0)
    here = ("demo", "-n", desk.namespace)
    for _ in range(2):  # the second finds the annotation, and is no wiser
        done = desk("cancel", *here)
        assert (done.code, done.err.splitlines()[1:]) == (
            1,
            [
                'Waiting for Kueue to make a Workload of the run "demo", to be told to leave it alone…',
                'Error: The run "demo" holds nothing now, but is not cancelled for good: Kueue has made no Workload of '
                "it, by which it would be told to leave it alone, and starts the run once it makes one.",
                f"Hint: To be rid of the run: launcher delete demo -n {desk.namespace}. To keep its record, repeat "
                f"launcher cancel demo -n {desk.namespace} when Kueue runs again, which launcher doctor shows.",
            ],
        )
        status = desk("status", *here, "-o", "json").json
        assert (status["state"], status["reason"]) == ("queued", "It is being cancelled.")
    # Kueue is back, and about to start it.
    player = follow_as(control_plane, "three-then-one-and-two", run)
    player.step_past("Workload", QuotaReserved="True")
    with controllers(control_plane, desk.namespace):
        done = desk("cancel", *here, "-o", "json")
    assert (done.code, done.json["state"]) == (0, "cancelled")
    (workload,) = admin.items(f"{KUEUE.format(desk.namespace)}/workloads")
    assert workload["spec"]["active"] is False


@pytest.mark.parametrize("then", ["delete", "submit"])
def test_a_cancelled_run_that_kueue_has_not_seen_is_deleted_and_replaced(
    then: str, desk: LauncherCli, control_plane: ControlPlane, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, file = submitted(desk, control_plane, "job-set")  # not suspended, either: nobody's webhook did it
    monkeypatch.setattr("launcher.backends.kubernetes.backend._WORKLOAD_SECONDS", 0.2)
    assert desk("cancel", "demo", "-n", desk.namespace).code == 1
    assert admin.get(path_of(run))["spec"]["suspend"] is True
    if then == "delete":
        done = desk("delete", "demo", "--yes", "-n", desk.namespace)
        assert (done.code, desk.runs(admin)) == (0, []), done.err
        return
    done = desk("submit", "-f", file, "--detach", "-o", "json")
    assert (done.code, done.json["attempt"], done.json["state"]) == (0, 2, "queued"), done.err
    assert 'The run "demo" was cancelled; it goes on from its last checkpoint' in done.err


def test_a_run_that_has_ended_is_left_as_it_is_and_deleted(
    desk: LauncherCli, control_plane: ControlPlane, admin: Api
) -> None:
    run, _ = submitted(desk, control_plane, "job-set")
    assert desk("submit", "-f", desk.values("ray-job", name="other"), "--detach").code == 0
    follow_as(control_plane, "three-then-one-and-two", run).step_to()
    ended = admin.get(path_of(run))
    here = ("demo", "-n", desk.namespace)
    done = desk("cancel", *here)
    assert (done.code, done.err) == (0, 'The run "demo" had succeeded.\n')
    assert admin.get(path_of(run)) == ended
    deleted = desk("delete", *here, "--yes")
    said = f'Deleting the run "demo" ({desk.where})…\nThe run "demo" is deleted.\n'
    assert (deleted.code, deleted.err) == (0, said)
    assert {"demo", "other"} & {run["metadata"]["name"] for run in desk.runs(admin)} == {"other"}
    again = desk("delete", *here, "--yes")
    assert again.code == 1
    assert again.err.startswith(f'Error: There is no run "demo" in the {desk.where}.')


def test_pods_that_do_not_end_are_told(
    desk: LauncherCli, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there to take them away."""
    run, _ = submitted(desk, control_plane, "job-set", run={"graceSeconds": 0})
    follow_as(control_plane, "three-then-one-and-two", run).step_past("Workload", PodsReady="True")
    monkeypatch.setattr("launcher.backends.kubernetes.backend._FREED_SECONDS", 0.3)
    done = desk("cancel", "demo", "-n", desk.namespace)
    assert done.code == 1
    assert done.err.splitlines()[1:] == [
        'Error: The run "demo" was told to end, and still holds 6 pods.',
        f"Hint: launcher cancel demo -n {desk.namespace} goes on waiting; launcher explain demo -n {desk.namespace} "
        "says more.",
    ]
    status = desk("status", "demo", "-n", desk.namespace, "-o", "json").json
    assert (status["state"], status["reason"]) == ("running", "It is being cancelled.")
