"""`launcher logs` with a real API server."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path

import gcsfs  # type: ignore[import-untyped]  # it ships no types
import pytest

from launcher import api as launcher_api
from launcher.k8s.target import Target
from tests.bucket import bucket
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import LauncherCli, fast_polling, until
from tests.cluster.replay import follow_as
from trainer.log_keeper import Buffer, Settings, Store


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


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the bucket example-runs, which a server on loopback has instead of Cloud Storage."""
    with bucket(tmp_path) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        gcsfs.GCSFileSystem.clear_instance_cache()
        yield tmp_path / "example-runs"
    gcsfs.GCSFileSystem.clear_instance_cache()


def store(runs: Path, name: str, source: str, *lines: str, attempt: int = 1) -> None:
    """Write the output of a run as its trainer does."""
    kept = Store(Settings(str(runs / name / "logs" / str(attempt)), source, 1 << 20, 1))
    buffer = Buffer()
    for line in lines:
        buffer.add(line.encode())
    kept.write(buffer.take(0)[0])


def test_logs_after_kuberay_has_deleted_the_pods(cli: LauncherCli, control_plane: ControlPlane, runs: Path) -> None:
    """The output is in the folder of the run. Without it, KubeRay keeps the last lines of a failed job."""
    for name, recording in (("bad", "rayjob-fails"), ("good", "rayjob-succeeds")):
        assert cli("submit", "-f", cli.values("ray-job", name=name), "--detach").code == 0
        run = next(run for run in cli.runs(control_plane.api) if run["metadata"]["name"] == name)
        follow_as(control_plane, recording, run).step_to()
    (runs / "other").mkdir(parents=True)
    kept = cli("logs", "bad", "-n", cli.namespace, "-f")
    assert (kept.code, kept.out.splitlines()[-1]) == (0, "about to fail")
    assert kept.out.startswith("(This is the end of the output, which KubeRay keeps in the RayJob. ")
    gone = cli("logs", "good", "-n", cli.namespace)
    assert (gone.code, gone.err.splitlines()[0]) == (
        1,
        'Error: The run "good" has no output in its folder, and no pods.',
    )
    lines = [
        "step 1/30",
        'SLIPWAY_EVENT {"event": "error"}',
        "(RayTrainWorker pid=7) step 2/30",
        "Error: about to fail",
    ]
    store(runs, "bad", "driver", *lines)
    store(runs, "bad", "host-1", "step 2/30", "Segmentation fault")
    store(runs, "bad", "driver", "an earlier attempt", attempt=9)
    bad = ("logs", "bad", "-n", cli.namespace)
    assert cli(*bad).out.splitlines() == [lines[0], *lines[2:]]
    assert cli(*bad, "--raw", "-f").out.splitlines() == lines
    assert cli(*bad, "--tail", "1").out == "Error: about to fail\n"
    assert cli(*bad, "--since", "1h", "--tail", "2").out.splitlines() == lines[2:]
    assert cli(*bad, "--since", "0s").out == ""
    assert cli(*bad, "--worker", "1").out == "step 2/30\nSegmentation fault\n"
    none = cli(*bad, "--worker", "2")
    assert (none.code, none.err) == (1, "Error: Worker 2 was not found: the run has 1, counted from 0.\n")
    assert cli(*bad, "--attempt", "9").out == "an earlier attempt\n"
    none = cli(*bad, "--attempt", "4")
    assert none.err == "Error: Attempt 4 was not found in gs://example-runs/bad/logs; it has: 1, 9.\n"
    assert cli("logs", "gs://example-runs/bad", "--attempt", "1", "--tail", "1").out == "Error: about to fail\n"
    into = runs.parent / "copy"
    assert cli(*bad, "--download", str(into)).code == 0
    assert sorted(str(path.relative_to(into)) for path in into.rglob("*.log")) == [
        *("1/driver.log", "1/host-1.log", "9/driver.log")
    ]
    assert (into / "1" / "host-1.log").read_text().splitlines()[1].endswith("Z Segmentation fault")


def test_the_pods_of_a_later_attempt_have_its_number(cli: LauncherCli, control_plane: ControlPlane, runs: Path) -> None:
    """The output of each attempt is in its own folder."""
    for steps in (30, 40):
        values = cli.values("job-set", train={"steps": steps})
        assert cli("submit", "-f", values, "--detach", "--continue").code == 0
        (run,) = cli.runs(control_plane.api)
        follow_as(control_plane, "run-fails-after-restarts", run).step_to()
    (job,) = run["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["template"]["metadata"]["annotations"]["slipway.dev/attempt"] == "2"
    store(runs, "demo", "host-0", "first")
    assert cli("logs", "demo", "-n", cli.namespace, "--attempt", "1").out == "first\n"


def test_a_claim_and_a_bucket_that_refuses_come_with_a_command(
    cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = {"kind": "pvc", "bucket": "", "claim": "shared"}
    for name, storage in (("claimed", claim), ("refused", {})):
        assert cli("submit", "-f", cli.values("ray-job", name=name, storage=storage), "--detach", "--force").code == 0
        run = next(run for run in cli.runs(control_plane.api) if run["metadata"]["name"] == name)
        follow_as(control_plane, "rayjob-succeeds", run).step_to()
    claimed = cli("logs", "claimed", "-n", cli.namespace)
    assert claimed.code == 1
    assert "its output is in the claim shared, which only pods can mount." in claimed.err
    command = shlex.split(claimed.err.partition("To print it: ")[2])
    assert command[:3] == ["kubectl", "run", "logs-claimed"]
    spec = json.loads(command[command.index("--overrides") + 1])["spec"]
    control_plane.api.create(  # the API server accepts the pod
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "logs-claimed", "namespace": cli.namespace},
            "spec": spec,
        }
    )
    with bucket(tmp_path, 403) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        gcsfs.GCSFileSystem.clear_instance_cache()
        refused = cli("logs", "refused", "-n", cli.namespace)
    gcsfs.GCSFileSystem.clear_instance_cache()
    assert refused.code == 1
    assert refused.err.startswith("Error: You may not read gs://example-runs/refused: ")
    assert "gcloud storage cp -r gs://example-runs/refused/logs ./refused/ && launcher logs ./refused" in refused.err
