"""Following runs on a real API server, while recordings of the real controllers are replayed on them."""

from __future__ import annotations

import io
import json
import re
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.cli import follow
from tests.cli.conftest import Result
from tests.cluster.api import Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import LauncherCli, until
from tests.cluster.replay import RecordingReplayer, follow_as


@pytest.fixture(autouse=True)
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print a line for each step."""
    monkeypatch.setattr(follow, "_LINE_SECONDS", 0.0)


class Following:
    """A submit that follows its run, in a thread. `replayer` replays a recording on the run."""

    def __init__(self, cli: LauncherCli, plane: ControlPlane, kind: str, recording: str, run: str = "") -> None:
        self.cli, self.plane = cli, plane
        self.file = cli.values(kind)
        assert cli("submit", "-f", self.file, "--detach").code == 0
        (self.run,) = cli.runs(plane.api)
        self.replayer: RecordingReplayer = follow_as(plane, recording, self.run, run=run)
        self.err = io.StringIO()
        self.result: Result | None = None
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        self.result = self.cli("submit", "-f", self.file, err=self.err)

    def expect(self, line: str) -> None:
        """Wait until this line is printed after the lines that were expected before."""
        until(lambda: f"{line}\n" in self.err.getvalue()[self._position :])
        self._position += self.err.getvalue()[self._position :].index(f"{line}\n") + len(line)

    _position = 0

    def end(self) -> Result:
        self.replayer.step_to()
        self._thread.join(20)
        assert self.result is not None
        return self.result

    def log(self) -> tuple[str, str]:
        """The pod and the container whose log is the run's log."""
        path = f"/api/v1/namespaces/{self.cli.namespace}/pods?labelSelector=slipway.dev/run=demo"
        return log_of(self.plane.api.items(path))

    def write(self, *lines: str) -> None:
        """Add lines to the run's log."""
        self.plane.write_log(self.cli.namespace, *self.log(), lines)


def log_of(pods: list[Object]) -> tuple[str, str]:
    """The pod and the container that print the run's output: Ray's head, or a JobSet's first host."""
    for pod in sorted(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], reverse=True):
        labels = pod["metadata"]["labels"]
        index = labels.get("batch.kubernetes.io/job-completion-index")
        if labels.get("ray.io/node-type") == "head" or index == "0":
            names = [container["name"] for container in pod["spec"]["containers"]]
            return pod["metadata"]["name"], next(name for name in names if name in ("ray-head", "trainer"))
    raise AssertionError("no pod prints")


def begun(steps: int = 30) -> str:
    return "SLIPWAY_EVENT " + json.dumps({"event": "loop_started", "step": 0, "steps": steps, "devices": 8})


def step(number: int, loss: float) -> str:
    """The line that the trainer prints after step `number`, counted from 0."""
    entry = {"step": number, "loss": loss, "step_seconds": 2.0, "tokens_per_second_per_device": 1000.0}
    return "SLIPWAY_METRICS " + json.dumps(entry)


def test_a_ray_job_that_succeeds(cli: LauncherCli, control_plane: ControlPlane) -> None:
    run = Following(cli, control_plane, "ray-job", "rayjob-succeeds")
    run.expect("demo: queued: Kueue has not created its Workload yet.")
    run.replayer.step_past("Workload", Admitted="True")
    run.expect("demo: admitted: Its pods are about to be created.")
    run.replayer.step_past("RayJob", jobDeploymentStatus="Running")
    run.expect("demo: starting: Ray is up; the job is about to start.")
    run.replayer.step_past("RayJob", jobStatus="RUNNING")
    run.expect("demo: running: Loading and compiling the model; no step is done yet.")
    run.write(begun(), step(0, 10.0))
    run.expect("demo: step 1/30, loss 10.000, 8,000 tokens/s, 58 s left")
    run.write(step(1, 9.0), step(2, 8.5))
    run.expect("demo: step 3/30, loss 8.500, 8,000 tokens/s, 54 s left")
    done = run.end()
    assert done.code == 0
    where = f"-n {cli.namespace}"
    assert [re.sub(r" -f \S+", " -f FILE", re.sub(" +", " ", line)) for line in done.out.splitlines()] == [
        "succeeded demo after 9 s",
        "steps 3 of 30",
        "loss 10.000 -> 8.500",
        "speed 8,000 tokens/s",
        "checkpoints gs://example-runs/demo/checkpoints",
        "metrics gs://example-runs/demo/metrics.jsonl",
        f"next launcher logs demo {where}",
        " show its output",
        f" launcher report demo {where}",
        " write a report with charts",
        f' launcher generate demo {where} "The"',
        " generate text with its model",
        " launcher submit -f FILE --name demo --set train.steps=60 --continue",
        " continue training",
    ]


def test_a_ray_job_that_fails(cli: LauncherCli, control_plane: ControlPlane) -> None:
    run = Following(cli, control_plane, "ray-job", "rayjob-fails")
    run.replayer.step_past("RayJob", jobDeploymentStatus="Running")
    run.expect("demo: starting: Ray is up; the job is about to start.")
    done = run.end()
    assert done.code == 1
    assert done.out.splitlines()[:2] == [
        "failed  demo after 3 s",
        "reason  Job entrypoint command failed with exit code 3",
    ]


def test_a_job_set_that_is_restarted_and_fails(cli: LauncherCli, control_plane: ControlPlane) -> None:
    run = Following(cli, control_plane, "job-set", "run-fails-after-restarts")
    run.replayer.step_past("Workload", PodsReady="True")
    run.expect("demo: running: Loading and compiling the model; no step is done yet.")
    run.write(begun(), step(0, 10.0))
    run.expect("demo: step 1/30, loss 10.000, 8,000 tokens/s, 58 s left")
    run.replayer.step_past("JobSet", RestartingJobSet="True")
    run.expect("Restart 1: The job demo-slice-0 has failed.")
    run.expect("demo: restarting")
    run.replayer.step_past("Workload", PodsReady="True")
    run.expect("demo: running")
    run.write(begun(), step(0, 9.0), step(1, 8.0))
    run.expect("demo: step 2/30, loss 8.000, 8,000 tokens/s, 56 s left")
    done = run.end()
    assert done.code == 1
    assert done.out.splitlines()[:5] == [
        "failed       demo after 15 s",
        "reason       It failed again, and run.maxRestarts allows no more restarts.",
        "steps        2 of 30",
        "loss         10.000 -> 8.000",
        "speed        8,000 tokens/s",
    ]
    assert "restarts     1" in done.out.splitlines()


def test_a_run_that_is_preempted_and_one_that_is_deleted(cli: LauncherCli, control_plane: ControlPlane) -> None:
    run = Following(cli, control_plane, "job-set", "preempted-by-priority", "low-3")
    run.replayer.step_past("Workload", PodsReady="True")
    run.expect("demo: running: Loading and compiling the model; no step is done yet.")
    run.replayer.step_past("Workload", Evicted="True")
    run.expect("demo: preempted: Preempted to accommodate a workload due to prioritization in the ClusterQueue")
    run.replayer.step_to()
    run.expect("demo: running: Loading and compiling the model; no step is done yet.")
    control_plane.api.delete(path_of(run.run))
    done = run.end()
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1] == 'Error: The run "demo" was deleted in the meantime.'


def test_a_run_that_waits_for_others(cli: LauncherCli, control_plane: ControlPlane) -> None:
    run = Following(cli, control_plane, "job-set", "three-then-one-and-two", "slices-1")
    run.replayer.step_past("JobSet", Completed="True")
    short = "insufficient unused quota for google.com/tpu in flavor v5e-2x4, 8 more needed"
    run.expect(f" in the queue multislice; couldn't assign flavors to pod set slice: {short}")
    assert re.search(r"demo: queued: number \d+ in the queue multislice; ", run.err.getvalue())
    done = run.end()
    assert (done.code, done.out.splitlines()[:2]) == (0, ["succeeded    demo after 20 s", "steps        30 of 30"])


# --- another machine ------------------------------------------------------------------------------------------------


def test_another_machine_follows_a_run_by_the_kubeconfig_alone(
    cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path
) -> None:
    assert cli("submit", "-f", cli.values("job-set"), "--detach").code == 0
    (made,) = cli.runs(control_plane.api)
    replayer = follow_as(control_plane, "three-then-one-and-two", made)
    replayer.step_past("Workload", PodsReady="True")
    other = replace(cli, folder=tmp_path / "elsewhere")
    other.folder.mkdir()
    here = ("demo", "-n", cli.namespace)
    status = other("status", *here, "-o", "json").json
    assert {key: status[key] for key in ("name", "kind", "state", "steps", "accelerator", "folder")} == {
        **{"name": "demo", "kind": "job-set", "state": "running", "steps": 30, "accelerator": "v5e 2x4"},
        **{"folder": "gs://example-runs/demo"},
    }
    late = other("wait", *here, "--timeout", "0.3")
    assert (late.code, late.out) == (124, "")
    assert late.err == 'Error: Timed out after 0.3 s: the run "demo" is running. It continues.\n'
    waiting = other.start("wait", *here, "-o", "json")
    following = other.start("submit", "-f", cli.values("job-set"))
    assert following.stderr is not None
    shown = []
    for line in following.stderr:
        shown.append(line)
        if line.startswith("demo: running"):
            break
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=20)
    assert (following.returncode, out) == (130, ""), "".join(shown)
    printed = err.splitlines()
    hints = printed[printed.index('The run "demo" continues.') + 1 :]
    verbs = ("explain", "attach", "logs", "wait", "cancel")
    assert [hint.split()[:2] for hint in hints] == [["launcher", verb] for verb in verbs]
    assert hints[-1].split() == ["launcher", "cancel", *here, "stop", "it"]
    assert waiting.poll() is None
    # A laptop that sleeps until the run has ended.
    waiting.send_signal(signal.SIGSTOP)
    replayer.step_to()
    waiting.send_signal(signal.SIGCONT)
    out, err = waiting.communicate(timeout=20)
    assert (waiting.returncode, json.loads(out)["state"], err) == (0, "succeeded", "")


def test_a_follower_outlives_the_api_server(cli: LauncherCli, control_plane: ControlPlane) -> None:
    run = Following(cli, control_plane, "job-set", "three-then-one-and-two")
    run.replayer.step_past("Workload", PodsReady="True")
    run.expect("demo: running: Loading and compiling the model; no step is done yet.")
    reader = cli.start("logs", "-f", "--raw", "demo", "-n", cli.namespace)
    assert reader.stdout is not None
    run.write("before")
    assert reader.stdout.readline() == "before\n"
    control_plane.restart_api_server()
    run.expect("The API server answers again.")
    run.write("after", begun(), step(0, 10.0))
    run.expect("demo: step 1/30, loss 10.000, 8,000 tokens/s, 58 s left")
    control_plane.end_log(cli.namespace, *run.log())
    done = run.end()
    assert done.code == 0
    out, err = reader.communicate(timeout=20)
    assert (reader.returncode, out.splitlines(), err) == (0, ["after", begun(), step(0, 10.0)], "")
    lost = [line for line in done.err.splitlines() if line.endswith("The run continues; retrying.")]
    assert len(lost) == 1
    # The poll of the state or, if it was reading the log at that moment, its stream.
    assert lost[0].startswith(
        (
            f"The API server of the context admin ({control_plane.server}) does not answer: ",
            "The stream was cut off: the server closed the connection. ",
        )
    )
