"""`launcher generate` and `launcher eval` of a run on a cluster: a job in its storage, followed by its log."""

from __future__ import annotations

import io
import json
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.products.models.inference import evaluate
from launcher.products.report.evaluations import Evaluation
from tests.cli.conftest import Result
from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_controllers import controllers
from tests.cluster.launching import LauncherCli, until
from tests.cluster.replay import RecordingReplayer, follow_as
from tests.cluster.test_states import log_of

PROMPT = "def main(\n--step"  # as an argument, it could be mistaken for an option


class Job:
    """A verb that waits for its job, in a thread. `run` is the job's object."""

    def __init__(
        self, cli: LauncherCli, plane: ControlPlane, *arguments: str, recording: str = "three-then-one-and-two"
    ) -> None:
        self.cli, self.plane = cli, plane
        self.err, self._results = io.StringIO(), []
        self._thread = threading.Thread(target=lambda: self._results.append(cli(*arguments, err=self.err)))
        before = {run["metadata"]["name"] for run in cli.runs(plane.api)}
        self._thread.start()

        def created() -> Object | None:
            assert self._thread.is_alive(), self._results
            found = [run for run in cli.runs(plane.api) if run["metadata"]["name"] not in before]
            return found[0] if found else None

        self.run: Object = until(created)
        self.name = str(self.run["metadata"]["name"])
        self.replayer: RecordingReplayer = follow_as(plane, recording, self.run)

    _results: list[Result]

    def config(self) -> dict[str, Any]:
        template = self.run["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        tree: dict[str, Any] = json.loads(template["metadata"]["annotations"]["slipway.dev/run-config"])
        return tree

    def write(self, lines: Sequence[str]) -> None:
        pods = f"/api/v1/namespaces/{self.cli.namespace}/pods?labelSelector=slipway.dev/run={self.name}"
        self._log = log_of(self.plane.api.items(pods))
        self.plane.write_log(self.cli.namespace, *self._log, lines)

    _log: tuple[str, str] = ("", "")

    def end(self) -> Result:
        self.plane.end_log(self.cli.namespace, *self._log)
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self._results[0]


def trained(cli: LauncherCli, plane: ControlPlane) -> None:
    """A run on a claim whose log shows that it wrote the checkpoint 29."""
    plane.api.ensure(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "runs", "namespace": cli.namespace},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    )
    values = Path(cli.values("job-set"))
    values.write_text(json.dumps({**json.loads(values.read_text()), "storage": {"kind": "pvc", "claim": "runs"}}))
    assert cli("submit", "-f", str(values), "--detach").code == 0
    (run,) = cli.runs(plane.api)
    follow_as(plane, "cancelled-while-running", run).step_past("Workload", PodsReady="True")
    path = f"/api/v1/namespaces/{cli.namespace}/pods?labelSelector=slipway.dev/run=demo"
    line = "checkpoint after step 30/30  training paused for 0.41 s"
    plane.write_log(cli.namespace, *log_of(plane.api.items(path)), [line])


def pieces(*texts: str) -> list[str]:
    return [f"SLIPWAY_TEXT {json.dumps({'number': number, 'text': text})}" for number, text in enumerate(texts)]


NUMBERS = {
    "prompt_tokens": 4,
    "tokens": 9,
    "seconds": 1.0,
    "tokens_per_second": 9.0,
    "first_token_seconds": 0.5,
    "load_seconds": 2.0,
    "ended": "length",
}


def test_a_job_in_the_storage_generates_the_text(cli: LauncherCli, control_plane: ControlPlane) -> None:
    trained(cli, control_plane)
    job = Job(cli, control_plane, "generate", "demo", "-n", cli.namespace, PROMPT, "--max-tokens", "9", "--stop", "-x")
    config = job.config()
    assert job.name.startswith("demo-generate-") and len(job.name) == len("demo-generate-") + 6
    assert (job.run["kind"], config["run"]["kind"], config["slice"]["accelerator"]) == ("JobSet", "job-set", "cpu")
    assert config["run"]["command"] == [
        *("python", "-m", "trainer.generate", "--config", "/data/demo/run.json", "--step", "29"),
        *("--max-tokens", "9", "--temperature", "0.8", "--seed", "0", "--top-p", "1.0", "--stop=-x"),
        *("--lines", f"--prompt={PROMPT}"),
    ]
    for section in ("storage", "team", "queue"):
        assert config[section] == json.loads(run_config(cli, control_plane, "demo"))[section]
    assert config["image"]["repository"] == "example.invalid/slipway"
    # The weights of Llama 3 8B in float32, which the job exports first, and their use.
    assert config["worker"]["memory"] == "34Gi"
    job.replayer.step_past("Workload", PodsReady="True")
    text = pieces("self", "):\n", "    pass")
    job.write([text[0], "a line of a library", text[1]])
    job.write(text)  # the job was preempted, and began again
    job.write([f"SLIPWAY_GENERATED {json.dumps(NUMBERS)}"])
    job.replayer.step_to()
    done = job.end()
    assert (done.code, done.out) == (0, "self):\n    pass\n")
    assert done.err.splitlines() == [
        f"The model runs in the job {job.name}, which waits in its queue first. To see why it waits: launcher explain "
        f"{job.name} -n {cli.namespace}",
        "9 tokens in 1.0 s (9 tokens/s), checkpoint 29 of demo.",
    ]
    # Only the run itself is left, in addition to the others of the recording.
    names = [run["metadata"]["name"] for run in cli.runs(control_plane.api)]
    assert [name for name in names if name.startswith("demo")] == ["demo"]


def test_a_job_evaluates(cli: LauncherCli, control_plane: ControlPlane) -> None:
    trained(cli, control_plane)
    arguments = ("eval", "demo", "-n", cli.namespace, "--tasks", "colors,shapes", "--limit", "5", "--tasks-folder")
    job = Job(cli, control_plane, *arguments, "/data/tasks", "--set", "worker.cpu=3")
    assert job.config()["worker"]["cpu"] == 3
    assert job.config()["run"]["command"][7:] == [
        *("--tasks", "colors,shapes", "--limit", "5", "--tasks-folder", "/data/tasks"),
    ]
    job.replayer.step_past("Workload", PodsReady="True")
    result = {"step": 29, "metrics": {"acc": 0.5}, "stderr": {"acc": 0.1}, "samples": 5}
    job.write([f"SLIPWAY_EVALUATION {json.dumps({'task': task, **result})}" for task in ("colors", "shapes")])
    job.replayer.step_to()
    done = job.end()
    assert done.code == 0, done.err
    assert [line.split() for line in done.out.splitlines()] == [
        ["TASK", "METRIC", "VALUE", "STDERR", "SAMPLES"],
        ["colors", "acc", "0.5", "0.1", "5"],
        ["shapes", "acc", "0.5", "0.1", "5"],
    ]


def test_a_job_that_fails_stays(cli: LauncherCli, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(lines: Iterable[str], say: Callable[[str], None]) -> Iterator[Evaluation]:
        def each() -> Iterator[str]:
            for line in lines:
                read.append(line)
                yield line

        return original(each(), say)

    original = evaluate.read
    monkeypatch.setattr(evaluate, "read", noted)
    trained(cli, control_plane)
    arguments = ("eval", "demo", "-n", cli.namespace, "--step", "29", "--tasks", "unheard")
    job = Job(cli, control_plane, *arguments, recording="run-fails-after-restarts")
    job.replayer.step_past("Workload", PodsReady="True")
    job.write(["loading", 'Error: There is no task "unheard" of lm-eval.'])
    until(lambda: len(read) == 2)  # the recording replaces the pod, and its log is gone
    job.replayer.step_to()
    done = job.end()
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[1:] == [
        f'Error: The job {job.name} failed: There is no task "unheard" of lm-eval.',
        f"Hint: To show its output: launcher logs {job.name} -n {cli.namespace}",
    ]
    assert job.name in {run["metadata"]["name"] for run in cli.runs(control_plane.api)}


def test_a_prompt_that_is_too_long_for_a_job(cli: LauncherCli, control_plane: ControlPlane) -> None:
    trained(cli, control_plane)
    done = cli("generate", "demo", "-n", cli.namespace, "a" * 40_000)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        "Error: The text has 40,009 bytes; a job on a cluster takes at most 32,768.",
        "Hint: To use a longer one, copy the model to this machine: launcher export demo",
    ]
    assert len(cli.runs(control_plane.api)) == 1


def run_config(cli: LauncherCli, plane: ControlPlane, name: str) -> str:
    (run,) = [run for run in cli.runs(plane.api) if run["metadata"]["name"] == name]
    template = run["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return str(template["metadata"]["annotations"]["slipway.dev/run-config"])


def test_ctrl_c_ends_and_deletes_the_job(cli: LauncherCli, control_plane: ControlPlane) -> None:
    trained(cli, control_plane)
    process = cli.start("generate", "demo", "-n", cli.namespace, "def")

    def jobs() -> list[Object]:
        return [run for run in cli.runs(control_plane.api) if run["metadata"]["name"].startswith("demo-generate-")]

    (job,) = until(lambda: jobs() or process.poll() is not None)
    follow_as(control_plane, "three-then-one-and-two", job).step_past("Workload", PodsReady="True")
    assert process.stderr is not None
    assert "The model runs in the job demo-generate-" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    with controllers(control_plane, cli.namespace):
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, f"Cancelling the job {job['metadata']['name']}.")
    assert jobs() == []
