"""The output of runs, from pods' logs through a real API server."""

from __future__ import annotations

import threading

import pytest

from launcher import api as launcher_api
from launcher.k8s.target import Target
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import LauncherCli, quickly, until
from tests.cluster.replay import follow_as


class Reader:
    """Reads the run's log in a thread, with `follow`."""

    def __init__(self, desk: LauncherCli) -> None:
        self.lines: list[str] = []
        self._place = Target(namespace=desk.namespace)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for line in launcher_api.logs("demo", follow=True, target=self._place):
            self.lines.append(line)

    def end(self) -> list[str]:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.lines


def test_a_log_is_followed_across_cuts_and_restarts(
    desk: LauncherCli, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.sit_down(monkeypatch)
    here = ("demo", "-n", desk.namespace)
    assert desk("submit", "-f", desk.values("job-set"), "--detach").code == 0
    (run,) = desk.runs(control_plane.api)
    early = desk("logs", *here)
    assert (early.code, early.err) == (
        1,
        'Error: The run "demo" is queued and has written nothing yet.\n'
        f"Hint: launcher explain demo -n {desk.namespace} says why.\n",
    )
    player = follow_as(control_plane, "run-fails-after-restarts", run)
    pods = f"/api/v1/namespaces/{desk.namespace}/pods?labelSelector=slipway.dev/run%3Ddemo"

    def hosts() -> list[str]:
        """The newest pod of each host, in their order."""
        key = "batch.kubernetes.io/job-completion-index"
        found = sorted(control_plane.api.items(pods), key=lambda pod: pod["metadata"]["creationTimestamp"])
        newest = {int(pod["metadata"]["labels"][key]): pod["metadata"]["name"] for pod in found}
        return [newest[index] for index in sorted(newest)]

    player.step_past("Workload", PodsReady="True")
    first, second = hosts()
    with quickly():
        reader = Reader(desk)
        for part in range(3):
            lines = [f"{part}.{number}" for number in range(5)]
            control_plane.write_log(desk.namespace, first, "trainer", lines)
            until(lambda: reader.lines[-1:] == lines[-1:])  # noqa: B023 - called at once
            control_plane.cut_logs()
        control_plane.write_log(desk.namespace, second, "trainer", ["of the second host"])
        assert desk("logs", *here, "--worker", "1").out == "of the second host\n"
        assert desk("logs", *here, "-o", "yaml").out.splitlines()[-1] == '- {"line": "2.4"}'
        none = desk("logs", *here, "--worker", "2")
        assert (none.code, none.err) == (1, "Error: There is no worker 2: the run has 2, counted from 0.\n")
        control_plane.end_log(desk.namespace, first, "trainer")
        player.step_past("JobSet", RestartingJobSet="True")
        player.step_past("Workload", PodsReady="True")
        again = hosts()[0]
        assert again != first
        control_plane.write_log(desk.namespace, again, "trainer", ["again"])
        until(lambda: reader.lines[-1:] == ["again"])
        control_plane.write_log(desk.namespace, again, "trainer", ["the end"])
        player.step_to()
        control_plane.end_log(desk.namespace, again, "trainer")
        followed = reader.end()
    assert followed == [*(f"{part}.{number}" for part in range(3) for number in range(5)), "again", "the end"]


def test_what_kuberay_keeps_of_a_log(desk: LauncherCli, control_plane: ControlPlane) -> None:
    """Of a job that failed, when its pods are gone; of one that succeeded, where else to look."""
    for name, recording in (("bad", "rayjob-fails"), ("good", "rayjob-succeeds")):
        assert desk("submit", "-f", desk.values("ray-job", name=name), "--detach").code == 0
        run = next(run for run in desk.runs(control_plane.api) if run["metadata"]["name"] == name)
        follow_as(control_plane, recording, run).step_to()
    kept = desk("logs", "bad", "-n", desk.namespace, "-f")
    assert (kept.code, kept.out.splitlines()[-1]) == (0, "about to fail")
    gone = desk("logs", "good", "-n", desk.namespace)
    assert (gone.code, gone.err) == (
        1,
        'Error: The log of "good" has gone with its pods.\nHint: Its metrics and events are in gs://example-runs/good.\n',
    )
