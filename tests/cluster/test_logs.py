"""`launcher logs` with a real API server."""

from __future__ import annotations

import threading

import pytest

from launcher import api as launcher_api
from launcher.k8s.target import Target
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import LauncherCli, fast_polling, until
from tests.cluster.replay import follow_as


class Reader:
    """Follows the run's log in a thread."""

    def __init__(self, cli: LauncherCli) -> None:
        self.lines: list[str] = []
        self._target = Target(namespace=cli.namespace)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for line in launcher_api.logs("demo", follow=True, target=self._target):
            self.lines.append(line)

    def end(self) -> list[str]:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.lines


def test_a_log_is_followed_across_cuts_and_restarts(
    cli: LauncherCli, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.use_environment(monkeypatch)
    here = ("demo", "-n", cli.namespace)
    assert cli("submit", "-f", cli.values("job-set"), "--detach").code == 0
    (run,) = cli.runs(control_plane.api)
    early = cli("logs", *here)
    assert (early.code, early.err) == (
        1,
        'Error: The run "demo" is queued and has written nothing yet.\n'
        f"Hint: To find out why: launcher explain demo -n {cli.namespace}\n",
    )
    replayer = follow_as(control_plane, "run-fails-after-restarts", run)
    pods = f"/api/v1/namespaces/{cli.namespace}/pods?labelSelector=slipway.dev/run%3Ddemo"

    def hosts() -> list[str]:
        """The newest pod of each host, in the order of the hosts."""
        key = "batch.kubernetes.io/job-completion-index"
        found = sorted(control_plane.api.items(pods), key=lambda pod: pod["metadata"]["creationTimestamp"])
        newest = {int(pod["metadata"]["labels"][key]): pod["metadata"]["name"] for pod in found}
        return [newest[index] for index in sorted(newest)]

    replayer.step_past("Workload", PodsReady="True")
    first, second = hosts()
    with fast_polling():
        reader = Reader(cli)
        for part in range(3):
            lines = [f"{part}.{number}" for number in range(5)]
            control_plane.write_log(cli.namespace, first, "trainer", lines)
            until(lambda: reader.lines[-1:] == lines[-1:])  # noqa: B023 - called at once
            control_plane.cut_logs()
        control_plane.write_log(cli.namespace, second, "trainer", ["of the second host"])
        assert cli("logs", *here, "--worker", "1").out == "of the second host\n"
        assert cli("logs", *here, "-o", "yaml").out.splitlines()[-1] == '- {"line": "2.4"}'
        none = cli("logs", *here, "--worker", "2")
        assert (none.code, none.err) == (1, "Error: Worker 2 was not found: the run has 2, counted from 0.\n")
        control_plane.end_log(cli.namespace, first, "trainer")
        replayer.step_past("JobSet", RestartingJobSet="True")
        replayer.step_past("Workload", PodsReady="True")
        again = hosts()[0]
        assert again != first
        control_plane.write_log(cli.namespace, again, "trainer", ["again"])
        until(lambda: reader.lines[-1:] == ["again"])
        control_plane.write_log(cli.namespace, again, "trainer", ["the end"])
        replayer.step_to()
        control_plane.end_log(cli.namespace, again, "trainer")
        followed = reader.end()
    assert followed == [*(f"{part}.{number}" for part in range(3) for number in range(5)), "again", "the end"]


def test_logs_after_kuberay_has_deleted_the_pods(cli: LauncherCli, control_plane: ControlPlane) -> None:
    """KubeRay keeps the last lines of a failed job. For a successful job, a hint names the folder of its metrics."""
    for name, recording in (("bad", "rayjob-fails"), ("good", "rayjob-succeeds")):
        assert cli("submit", "-f", cli.values("ray-job", name=name), "--detach").code == 0
        run = next(run for run in cli.runs(control_plane.api) if run["metadata"]["name"] == name)
        follow_as(control_plane, recording, run).step_to()
    kept = cli("logs", "bad", "-n", cli.namespace, "-f")
    assert (kept.code, kept.out.splitlines()[-1]) == (0, "about to fail")
    gone = cli("logs", "good", "-n", cli.namespace)
    assert (gone.code, gone.err) == (
        1,
        'Error: The log of the run "good" was deleted with its pods.\n'
        "Hint: Its metrics and events are in gs://example-runs/good.\n",
    )
