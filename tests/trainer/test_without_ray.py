"""The training loop without Ray: one process per host, as in a JobSet."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from launcher import api
from tests import huggingface_model
from tests.bucket import bucket
from tests.trainer.runs import ONE_HOST, STEPS, WEIGHED, Run, TrainingHarness, free_port, numbers, steps, with_run


def saved(run: Run) -> list[int]:
    """Return the steps of a run's checkpoints."""
    return sorted(int(folder.name) for folder in (run.folder / "checkpoints").iterdir() if folder.name.isdigit())


def test_two_processes_without_ray_train_as_two_workers_under_ray(lab: TrainingHarness, undisturbed: Run) -> None:
    config = lab.config("without-ray", checkpoint_period="auto")
    coordinator = f"127.0.0.1:{free_port()}"
    first = lab.start(config, "--no-ray", SLIPWAY_COORDINATOR=coordinator, JOB_INDEX="0", JOB_COMPLETION_INDEX="0")
    second = lab.start(config, "--no-ray", SLIPWAY_COORDINATOR=coordinator, JOB_INDEX="0", JOB_COMPLETION_INDEX="1")
    assert (first.wait(), second.wait()) == (0, 0), first.output()[-4000:]
    assert numbers(first.metrics()) == numbers(undisturbed.metrics())
    # Both hosts save after the steps that the first one chose: half of the run's 17, because the steps are short.
    (choice,) = first.events("checkpoint_period")
    assert choice["step"] == 8
    assert choice["message"].startswith("A checkpoint every 8 steps, ")
    assert saved(first) == [7, 15, 16]


@contextlib.contextmanager
def half_speed(process: psutil.Process) -> Iterator[None]:
    """Pause the process for more than half of the time."""
    done = threading.Event()

    def pause() -> None:
        while not done.wait(0.02):
            process.suspend()
            done.wait(0.04)
            process.resume()

    thread = threading.Thread(target=pause)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_slow_host_is_named_and_all_hosts_stop_after_the_same_step(lab: TrainingHarness) -> None:
    """The rules of a JobSet handle exit code 3 (charts/run/templates/job-set.yaml) of the first host that ends.
    tests/image/test_jobset_containers.py resumes such a run."""
    config = lab.config("stop-signal", steps=100_000, checkpoint_period=50_000, eval_interval=None)
    environment = {"SLIPWAY_COORDINATOR": f"127.0.0.1:{free_port()}", "JOB_INDEX": "0"}

    def start(host: int) -> Run:
        place = {"JOB_COMPLETION_INDEX": str(host), "SLIPWAY_NODE": f"node-{host}"}
        return lab.start(config, "--no-ray", module="tests.trainer.often_probed", **place, **environment)

    first, second = start(0), start(1)
    first.until(lambda: first.step() >= 5)

    def named() -> list[dict[str, Any]]:
        # Other tests can really slow down the first host, too.
        return [event for event in first.events("slow_host") if event["host"] == 1]

    trains = max(second.descendants("trainer"), key=psutil.Process.create_time)  # the newest: its parent only waits
    with half_speed(trains):
        first.until(lambda: named() != [], 240)
    event = named()[0]
    assert event["node"] == "node-1"
    assert re.fullmatch(
        r"Host 1 \(.+ on the node node-1\) is slow: the same calculation takes \d+% longer than .*", event["message"]
    )
    second.process.terminate()
    assert (first.wait(), second.wait()) == (3, 3), first.output()[-4000:]
    stopped = first.step()
    assert (first.folder / "checkpoints" / str(stopped)).is_dir()
    assert "Error: A host received a stop signal: training stopped after" in first.output()


def test_a_killed_process_of_a_job_set_restarts_in_its_pod(lab: TrainingHarness, undisturbed_host: Run) -> None:
    config = with_run(lab.config("in-place", hosts=1, **{**ONE_HOST, "steps": 9}), kind="job-set")
    run = lab.start(config, "--no-ray")
    run.until(lambda: run.step() >= 5)
    max(run.descendants("trainer"), key=psutil.Process.create_time).kill()
    assert run.wait() == 0, run.output()[-4000:]
    (event,) = run.events("worker_failed")
    first, second = (start["step"] for start in run.events())
    assert first == 0 < second  # from the first or the second checkpoint, which may not be complete
    failure = (
        rf"worker 0 was killed by signal 9 \(SIGKILL\); resuming from step {second}, \d steps? repeated, restart 1 of 2"
    )
    assert re.fullmatch(failure, event["message"])
    assert {step[0]: step for step in steps(run)} == {step[0]: step for step in steps(undisturbed_host)[:9]}


def test_a_killed_process_of_several_hosts_restarts_in_its_pod(lab: TrainingHarness, undisturbed: Run) -> None:
    """First that of the second host, then that of the first, with the coordinator. No pod ends, and no step changes."""
    config = with_run(lab.config("in-place-hosts"), kind="job-set")
    place = {"SLIPWAY_COORDINATOR": f"127.0.0.1:{free_port()}", "JOB_INDEX": "0"}
    hosts = [lab.start(config, "--no-ray", JOB_COMPLETION_INDEX=str(host), **place) for host in range(2)]
    first, second = hosts
    second.until(lambda: second.step() >= 6)
    for number, killed in enumerate((second, first), start=2):
        max(killed.descendants("trainer"), key=psutil.Process.create_time).kill()
        second.until(lambda starts=number: len(second.events()) == starts and second.step() >= 9)  # type: ignore[misc]
    assert (first.wait(), second.wait()) == (0, 0), first.output()[-4000:] + second.output()[-4000:]
    assert numbers(first.metrics()) == numbers(undisturbed.metrics())
    messages = [event["message"] for event in first.events("worker_failed")]
    for rank, message in zip((1, 0), messages, strict=True):
        assert re.match(rf"worker {rank} was killed by signal 9 \(SIGKILL\); resuming from step ", message)


def test_a_host_waits_for_a_slice_that_jobset_creates_again(lab: TrainingHarness, undisturbed: Run) -> None:
    """With run.restartAction: RestartJob: first the pod of the second slice is killed, then that of the first, with the
    coordinator. Then the second one must stop. The other one stays each time. Only one restart is allowed, but each
    checkpoint renews that budget, and a stop does not use it. tests/image/test_jobset_containers.py has real pods."""
    more_steps: dict[str, Any] = {"steps": 120, "learning_rate_schedule_steps": STEPS, "eval_interval": None}
    config = lab.config("slices", hosts=1, **more_steps)
    tree = json.loads(config.read_text())
    tree["slice"]["count"] = 2
    config.write_text(json.dumps(tree))
    with_run(config, kind="job-set", restartAction="RestartJob", maxRestarts=1)
    place = {"SLIPWAY_COORDINATOR": f"127.0.0.1:{free_port()}", "JOB_COMPLETION_INDEX": "0"}

    def start(index: int) -> Run:
        return lab.start(config, "--no-ray", JOB_INDEX=str(index), **place)

    def until(step: int, starts: int) -> None:
        slices[0].until(lambda: len(slices[0].events()) == starts and slices[0].step() >= step)

    def replace(index: int) -> None:
        kill(slices[index])
        slices[index] = start(index)

    slices = [start(0), start(1)]
    until(6, 1)
    replace(1)
    until(9, 2)
    replace(0)
    until(12, 3)
    slices[1].process.terminate()
    assert slices[1].wait() == 3, slices[1].output()[-4000:]
    stopped = slices[0].step()
    assert (slices[0].folder / "checkpoints" / str(stopped)).is_dir()
    slices[1] = start(1)
    assert [run.wait() for run in slices] == [0, 0], "".join(run.output()[-4000:] for run in slices)
    assert steps(slices[0])[:STEPS] == steps(undisturbed)
    starts = [event["step"] for event in slices[0].events()]
    assert (len(starts), starts[3]) == (4, stopped + 1)
    assert slices[0].events("worker_failed") == []


def kill(run: Run) -> None:
    """Kill all processes of a host, as the end of its pod does."""
    for process in [*psutil.Process(run.process.pid).children(recursive=True), psutil.Process(run.process.pid)]:
        process.kill()
    run.wait()


def test_without_restarts_a_killed_process_ends_all_hosts(lab: TrainingHarness) -> None:
    """The JobSet creates the pods again, or fails the run."""
    config = with_run(lab.config("no-restarts-left", eval_interval=None), kind="job-set", maxRestarts=0)
    place = {"SLIPWAY_COORDINATOR": f"127.0.0.1:{free_port()}", "JOB_INDEX": "0"}
    hosts = [lab.start(config, "--no-ray", JOB_COMPLETION_INDEX=str(host), **place) for host in range(2)]
    hosts[1].until(lambda: hosts[1].step() >= 2)
    max(hosts[1].descendants("trainer"), key=psutil.Process.create_time).kill()
    assert hosts[1].wait(60) == -signal.SIGKILL
    assert hosts[0].wait(60) in (1, -signal.SIGABRT)
    assert hosts[0].events("worker_failed") == []


def test_a_coordinators_port_in_use_is_reported(lab: TrainingHarness) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = lab.train(
            lab.config("port-taken"), "--no-ray", SLIPWAY_COORDINATOR=f"127.0.0.1:{port}", SLIPWAY_HOST_INDEX="0"
        )
    assert run.process.returncode == 2
    assert run.output().splitlines()[-1] == (
        f"Error: Port {port} of the coordinator is in use on this host; set another one in SLIPWAY_COORDINATOR."
    )


def test_a_process_without_a_host_index_reports_it(lab: TrainingHarness) -> None:
    config = lab.config("no-place")
    run = lab.train(config, "--no-ray")
    assert run.process.returncode == 2
    assert "SLIPWAY_COORDINATOR is not set" in run.output().splitlines()[-1]
    run = lab.train(config, "--no-ray", SLIPWAY_COORDINATOR="127.0.0.1", SLIPWAY_HOST_INDEX="2")
    assert run.process.returncode == 2
    assert "0 to 1" in run.output().splitlines()[-1]


def test_a_batch_that_does_not_divide_over_the_hosts_is_rejected_at_once(lab: TrainingHarness) -> None:
    run = lab.train(lab.config("indivisible", hosts=1, per_device_batch_size=0.3), "--no-ray")
    assert run.process.returncode == 2, run.output()[-3000:]
    assert run.events("error")[-1]["message"].startswith("MaxText rejects the config: ")


def test_a_run_trains_on_maxtexts_synthetic_data_and_mfu_is_the_share_of_the_chips_peak(
    lab: TrainingHarness,
) -> None:
    config = lab.config("synthetic", hosts=1, data={}, dataset_type="synthetic", steps=4, eval_interval=None)
    tree = json.loads(config.read_text())
    tree["accelerator"]["peakTflops"] = 0.5
    config.write_text(json.dumps(tree))
    run = lab.train(config, "--no-ray")
    assert run.process.returncode == 0, run.output()[-4000:]
    assert [line["step"] for line in run.metrics()] == [0, 1, 2, 3]
    for line in run.metrics():
        assert line["mfu"] == pytest.approx(line["tflops_per_second_per_device"] / 0.5, abs=2e-6)


def test_training_starts_from_pretrained_weights(lab: TrainingHarness, undisturbed_host: Run) -> None:
    """From the last step of another run, whose number the trainer finds."""
    weights = undisturbed_host.folder / "checkpoints" / "last" / "items"
    config = lab.config("pretrained", hosts=1, **{**ONE_HOST, "steps": 1}, load_parameters_path=str(weights))
    config.write_text(json.dumps({**json.loads(config.read_text()), "from": "undisturbed-host"}))
    run = lab.train(config, "--no-ray", module=WEIGHED)
    assert run.process.returncode == 0, run.output()[-4000:]
    assert run.copies() <= 1.01
    before = next(line for line in run.metrics() if "eval_loss" in line)
    trained = [line for line in undisturbed_host.metrics() if "eval_loss" in line][-1]
    assert (before["step"], before["eval_loss"]) == (0, trained["eval_loss"])


def test_a_checkpoint_is_listed_exported_and_imported(
    undisturbed_host: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the launcher, from the folder of a run. The weights return bit for bit, in the layout of a checkpoint."""
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "home"))
    folder = undisturbed_host.folder
    found = api.checkpoints(str(folder))
    assert all(each.whole and each.bytes and each.saved for each in found.checkpoints)
    last = found.checkpoints[-1]
    trained = [line for line in undisturbed_host.metrics() if "eval_loss" in line][-1]
    assert (last.step, last.last, last.best) == (int(ONE_HOST["steps"]) - 1, True, True)
    assert (last.eval_loss, last.evaluated) == (trained["eval_loss"], True)

    said: list[str] = []
    to, model = "gs://models/tiny", tmp_path / "cloud" / "models" / "tiny"
    model.parent.mkdir(parents=True)
    with bucket(tmp_path / "cloud") as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        done = api.export(str(folder), to, step="best", say=said.append)
    assert (done.step, done.to, done.state) == (last.step, to, "exported")
    assert said[-1].startswith("Uploaded config.json (")
    record = json.loads((model / "slipway.json").read_text())
    assert (record["run"], record["step"], record["dtype"]) == (folder.name, last.step, "float32")
    assert f"{last.eval_loss:.4f}" in (model / "README.md").read_text()
    assert list((tmp_path / "home").iterdir()) == []  # the copy that was uploaded

    train = json.loads((folder / "run.json").read_text())["train"]
    sets = {f"train.{key}": value for key, value in train.items()}
    weights = api.import_weights(str(model), str(tmp_path / "weights"), [], sets)
    assert weights.parameters == done.parameters
    again = api.export(str(_as_checkpoint(tmp_path / "weights", folder, tmp_path / "again")), str(tmp_path / "second"))
    assert (tmp_path / "second" / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    assert again.parameters == done.parameters


def _as_checkpoint(weights: Path, run: Path, folder: Path) -> Path:
    """Return a run's folder with the imported weights as its only checkpoint, and the config of another run."""
    (folder / "checkpoints").mkdir(parents=True)
    shutil.copytree(weights, folder / "checkpoints" / "0")
    shutil.copy(run / "run.json", folder)
    return folder


@pytest.mark.parametrize(
    "keys",
    [
        {"dataset_type": "hf", "hf_path": "parquet", "hf_train_files": "{file}"},
        {"dataset_type": "grain", "grain_file_type": "parquet", "grain_train_files": "{file}", "grain_worker_count": 0},
    ],
    ids=lambda keys: keys["dataset_type"],
)
def test_a_run_trains_on_the_datasets_of_maxtext(lab: TrainingHarness, tmp_path: Path, keys: dict[str, Any]) -> None:
    """The dataset is a file, because no test reads the Hub."""
    file = tmp_path / "text.parquet"
    pq.write_table(pa.table({"text": [f"Line {number} of the text. " * 20 for number in range(400)]}), file)
    dataset = {key: str(file) if value == "{file}" else value for key, value in keys.items()}
    folder = huggingface_model.write(tmp_path / "tokenizer")
    data = {"tokenizer": {"kind": "huggingface", "path": str(folder)}}
    name = str(keys["dataset_type"])
    run = lab.train(lab.config(name, hosts=1, data=data, steps=3, eval_interval=None, **dataset), "--no-ray")
    assert run.process.returncode == 0, run.output()[-4000:]
    assert run.step() == 2


def test_fewer_steps_are_rejected_and_more_steps_resume_from_the_last_checkpoint(
    lab: TrainingHarness, undisturbed_host: Run
) -> None:
    def run(steps: int, hosts: int = 1, **more: Any) -> Run:
        config = lab.config("more", hosts=hosts, **{**ONE_HOST, "eval_interval": 5, "steps": steps, **more})
        return lab.train(config, "--no-ray", module=WEIGHED)

    def refused(what: str, hosts: int = 1, new: str = "submit under a new name", **more: Any) -> None:
        other = run(8, hosts, **more)
        assert other.process.returncode == 2
        assert other.output().splitlines()[-1] == (
            f"Error: more cannot continue from its last checkpoint: {what} now; change it back, or {new}."
        )

    first = run(4, checkpoint_period="auto")
    assert first.process.returncode == 0, first.output()[-4000:]
    assert saved(first) == [1, 3]
    assert [event["step"] for event in first.events("checkpoint_period")] == [2]
    record = (first.folder / "run.json").read_text()
    refused("train.head_dim was 16, and is 32", head_dim=32)
    from_it = "start a new run from its weights (from: more@3)"
    refused("the number of hosts was 1, and is 2", hosts=2, new=from_it)
    refused("train.packing was True, and is False", packing=False, new=from_it)
    fewer = run(3)
    assert fewer.process.returncode == 2
    assert fewer.output().splitlines()[-1] == (
        "Error: train.steps is 3, but more has trained 4 steps already; set more steps, or submit under a new name."
    )
    assert (first.folder / "run.json").read_text() == record
    more = run(8, checkpoint_period="auto")
    assert more.process.returncode == 0, more.output()[-4000:]
    assert [event["step"] for event in more.events()] == [0, 4]
    assert more.copies() <= 1.01
    # The evaluation after the former last step is kept, because it is still valid for that step.
    assert [line["step"] for line in more.metrics() if "eval_loss" in line] == [0, 4, 5, 8]
    assert steps(more) == steps(undisturbed_host)[:8]
    assert saved(more) == [1, 3, 7]


def test_data_that_changed_between_attempts_is_rejected(lab: TrainingHarness, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog.\n" * 300)
    data = {
        "files": [str(text)],
        "heldOut": {"fraction": 0.1},
        "tokenizer": {"kind": "sentencepiece", "path": str(lab.tokenizer)},
    }
    config = lab.config("changed", hosts=1, data=data, steps=2)
    assert lab.train(config, "--no-ray").process.returncode == 0
    text.write_text("Something else altogether.\n" * 300)
    run = lab.train(config, "--no-ray")
    assert run.process.returncode == 2
    assert "have changed since the run started" in run.output().splitlines()[-1]
    # Another config may change the data: the user has confirmed it with `launcher submit --continue`.
    more = lab.config("changed", hosts=1, data=data, steps=3)
    assert lab.train(more, "--no-ray").process.returncode == 0


def test_a_loss_that_is_not_finite_ends_the_run_and_is_written_as_null(lab: TrainingHarness) -> None:
    run = lab.train(
        lab.config("diverged", hosts=1, learning_rate=1e30, gradient_clipping_threshold=0, warmup_steps_fraction=0),
        "--no-ray",
    )
    assert run.process.returncode == 2, run.output()[-3000:]
    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["loss"] is None
    # The number of a step is that of the log, which counts from 1.
    assert f"The loss of step {last['step'] + 1} is nan: " in run.events("error")[-1]["message"]
    assert re.search(rf"^step {last['step'] + 1}/\d+  loss nan", run.output(), re.M)
