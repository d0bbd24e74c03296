"""Complete runs under Ray: their files, and that killed processes do not change their numbers."""

from __future__ import annotations

import ipaddress
import json
import math
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import mlx.core as mx
import numpy as np
import psutil
import pytest

from launcher.products.records import api, form
from launcher.products.report.build import build
from tests.trainer.runs import CHECKOUT, STEPS, Run, TrainingHarness, numbers, with_metrics
from tests.trainer.scrape import get, scraped
from trainer.inference.model import load
from trainer.spares import SWITCH as SPARES


def test_a_run_learns_and_writes_metrics_checkpoints_and_tensorboard(undisturbed: Run) -> None:
    metrics = undisturbed.metrics()
    train = [line for line in metrics if "loss" in line]
    held_out = [line for line in metrics if "eval_loss" in line]

    assert [line["step"] for line in train] == list(range(STEPS))
    assert train[-1]["loss"] < train[0]["loss"] - 0.3
    # An untrained model guesses among 512 pieces, a little worse than with equal probabilities.
    assert train[0]["loss"] == pytest.approx(math.log(512), abs=1)
    assert [line["step"] for line in held_out] == [0, 5, 10, 15, STEPS]
    assert held_out[-1]["eval_loss"] < held_out[0]["eval_loss"] - 0.3
    for line in train:
        assert line["step_seconds"] > 0
        assert line["tokens_per_second_per_device"] == pytest.approx(2 * 64 / line["step_seconds"], rel=0.01)
        assert line["tflops_per_second_per_device"] > 0
        assert "mfu" not in line  # a CPU has no peak in the table
    assert max(line["grad_norm"] for line in train) > 1.01  # MaxText clips the gradients to a norm of 1 after this
    assert {path.name for path in (undisturbed.folder / "checkpoints").iterdir()} == {"0", "4", "8", "12", "16"}
    assert list((undisturbed.folder / "tensorboard").rglob("events.out.tfevents.*"))
    assert [event["devices"] for event in undisturbed.events()] == [2]
    assert undisturbed.process.returncode == 0


def test_a_run_leaves_a_record_and_notifies(lab: TrainingHarness, undisturbed: Run) -> None:
    record = record_of(undisturbed)
    assert (record["state"], record["steps"], record["steps_wanted"]) == ("succeeded", STEPS, STEPS)
    assert (record["chips"], record["tokens"]) == (2, STEPS * 2 * 64 * 2)
    (attempt,) = record["attempts"]
    assert (attempt["from_step"], attempt["steps"], attempt["end"]) == (0, STEPS, "succeeded")
    assert attempt["seconds"].keys() >= {"starting", "compiling", "training", "evaluation", "checkpoints"}
    assert record["seconds"]["training"] > 0
    received = json.loads((lab.root / "notifications.json").read_text())
    assert [body["event"] for body in received] == ["started", "first-step", "ended"]
    assert received[-1]["text"] == "Run undisturbed has succeeded."


def record_of(run: Run) -> Any:
    """Return the record of a run as the launcher reads it."""
    read = api.read_records(run.folder)
    assert read.problems == []
    (record,) = read.records
    jsonschema.validate(record, form.schema())
    return record


def test_each_metrics_line_is_printed_with_its_prefix(undisturbed: Run) -> None:
    printed = [line for line in undisturbed.output().splitlines() if "SLIPWAY_METRICS {" in line]
    assert len(printed) == len(undisturbed.metrics())


def test_the_log_has_a_line_for_people_for_each_step_evaluation_checkpoint_and_phase(undisturbed: Run) -> None:
    def printed(pattern: str) -> list[str]:
        return re.findall(rf"(?m)^\(RayTrainWorker [^)]*\) {pattern}$", undisturbed.output())

    step = rf"step ([0-9]+)/{STEPS}  loss [0-9.]+  grad norm [0-9.]+  [0-9,]+ tokens/s  [0-9.]+ s"
    assert printed(step) == [str(number) for number in range(1, STEPS + 1)]
    evaluation = rf"evaluation after step ([0-9]+)/{STEPS}  held-out loss [0-9.]+  [0-9.]+ s"
    assert printed(evaluation) == ["0", "5", "10", "15", str(STEPS)]
    checkpoint = rf"checkpoint after step ([0-9]+)/{STEPS}  training paused for [0-9.]+ s"
    assert printed(checkpoint) == ["1", "5", "9", "13", "17"]
    assert printed(r"start: ([a-z]+) [0-9.]+ s") == ["imports", "data", "compile"]
    phases = [event["phase"] for event in undisturbed.events("phase")]
    assert phases[:7] == ["ray", "imports", "data", "compile", "training", "evaluation", "training"]
    assert phases.count("evaluation") == phases.count("checkpoint") == 5


def test_the_line_of_a_step_is_written_before_its_checkpoint_starts(undisturbed: Run) -> None:
    """A run that is killed between the two would otherwise resume after a step that has no line."""
    written = {line["step"]: line["time"] for line in undisturbed.metrics() if "loss" in line}
    checkpoints = sorted((undisturbed.folder / "checkpoints").iterdir())
    assert checkpoints
    for checkpoint in checkpoints:
        started = json.loads((checkpoint / "_CHECKPOINT_METADATA").read_text())["init_timestamp_nsecs"] / 1e9
        assert datetime.fromisoformat(written[int(checkpoint.name)]).timestamp() < started + 0.001


def serves_a_line(run: Run) -> bool:
    """Return whether the served values are those of one line of metrics.jsonl. Between two steps they may be mixed."""
    served = scraped(get((run.folder / "metrics-address-0.txt").read_text().strip()))
    assert (served["slipway_target_steps"], served["slipway_attempt"], served["slipway_restarts_total"]) == (
        100_000,
        1,
        0,
    )
    assert 0 < served["slipway_goodput_ratio"] <= 1
    assert not any(name.startswith(("slipway_hbm", "slipway_chip", "slipway_mfu")) for name in served)  # it is a CPU
    steps = [line for line in run.metrics() if "loss" in line]
    counted = steps[: int(served["slipway_step"]) + 1]
    held_out = [line["eval_loss"] for line in run.metrics() if "eval_loss" in line and line["step"] <= len(counted)]
    expected = {
        "slipway_loss": counted[-1]["loss"],
        "slipway_learning_rate": counted[-1]["learning_rate"],
        "slipway_last_step_seconds": counted[-1]["step_seconds"],
        "slipway_tokens_per_second": 2 * counted[-1]["tokens_per_second_per_device"],
        "slipway_device_flops_per_second": counted[-1]["tflops_per_second_per_device"] * 1e12,
        "slipway_step_duration_seconds_count": len(counted),
        "slipway_eval_loss": held_out[-1],
    }
    total = sum(line["step_seconds"] for line in counted)
    seconds = [served["slipway_productive_seconds"], served["slipway_step_duration_seconds_sum"]]
    return {name: served[name] for name in expected} == expected and seconds == pytest.approx([total, total])


def is_loopback(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def test_a_killed_worker_does_not_change_the_numbers(lab: TrainingHarness, undisturbed: Run) -> None:
    """The first host, which coordinates the others, is killed during a checkpoint. In tests/image, another host is
    killed between two checkpoints."""
    run = lab.start(lab.config("killed-worker"), **{SPARES: "1"})

    def writing() -> bool:
        names = [path.name for path in (run.folder / "checkpoints").glob("*tmp*")]
        return any(int(name.partition(".")[0]) > 4 for name in names)

    run.until(lambda: writing() or run.step() >= 13)
    run.descendants("ray::RayTrainWorker")[0].kill()
    assert run.wait() == 0, run.output()[-4000:]

    first, resumed = (event["step"] for event in run.events())
    assert first == 0
    assert resumed in (5, 9, 13)
    (failed,) = (event["message"] for event in run.events("worker_failed"))
    # The kernel reports the signal from Linux 6.15 on.
    assert re.fullmatch(
        r"worker [01] was killed( by signal 9 \(SIGKILL\)|, ran out of memory, or crashed); "
        rf"resuming from step {resumed}, [0-9]+ steps? repeated, restart 1 of 2",
        failed,
    )
    assert numbers(run.metrics()) == numbers(undisturbed.metrics())
    assert not list((run.folder / "checkpoints").glob("*tmp*"))
    # TensorBoard's own rule: a session that starts at step S replaces the values of earlier files from S on.
    assert tensorboard_steps(run.folder) == list(range(STEPS))


def test_too_little_memory_is_restarted_once(lab: TrainingHarness) -> None:
    """The batch needs more memory than any machine of these tests has. MaxText's own data needs none of it."""
    huge = lab.config(
        "huge", hosts=1, data={}, dataset_type="synthetic", eval_interval=None, per_device_batch_size=2**19
    )
    run = lab.train(huge)
    assert run.process.returncode == 2, run.output()[-4000:]
    memory = r"the run is out of memory \(RESOURCE_EXHAUSTED: [^()]*\); lower train.per_device_batch_size or .*"
    [failed] = [event["message"] for event in run.events("worker_failed")]
    assert re.fullmatch(rf"worker 0 failed: {memory} restart 1 of 2", failed)
    [error] = [event["message"] for event in run.events("error")]
    assert re.fullmatch(
        rf"Workers failed \(worker 0 failed: {memory}\)\. It is the second failure of this kind before its first "
        r"step, so the run does not restart\.",
        error,
    )


def tensorboard_steps(folder: Path) -> list[int]:
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    steps: list[int] = []
    for path in sorted((folder / "tensorboard").rglob("events.out.tfevents.*")):
        raw = path.read_bytes()
        at = 0
        while at + 12 <= len(raw):
            length = int.from_bytes(raw[at : at + 8], "little")
            record = raw[at + 12 : at + 12 + length]
            at += 16 + length
            if len(record) < length:
                break  # the file of a killed process may end inside a record
            event = Event.FromString(record)
            if event.session_log.status == SessionLog.START:
                steps = [step for step in steps if step < event.step]
            steps.extend(event.step for value in event.summary.value if value.tag == "learning/loss")
    return steps


def test_a_run_that_is_already_trained_does_nothing(lab: TrainingHarness, undisturbed: Run) -> None:
    before = undisturbed.metrics()
    again = lab.train(lab.root / "undisturbed.json")
    assert again.process.returncode == 0
    assert "is already trained" in again.output()
    assert again.metrics() == before


def test_a_run_serves_its_metrics_on_loopback_and_ends_if_its_text_becomes_unreadable(
    lab: TrainingHarness, tmp_path: Path
) -> None:
    """All ports of the run are on loopback. The check at the start reads valid text, which is overwritten later."""
    for index in range(8):
        (tmp_path / f"{index}.txt").write_text(f"Text number {index} is short but it is text.\n" * 200)
    tokenizer = {"kind": "sentencepiece", "path": str(lab.tokenizer)}
    data = {"files": [str(tmp_path)], "heldOut": {"fraction": 0.2}, "tokenizer": tokenizer}
    long: dict[str, Any] = {"steps": 100_000, "checkpoint_period": 50_000, "eval_interval": None}
    run = lab.start(with_metrics(lab.config("served", data=data, **long)))
    try:
        run.until(lambda: run.step() >= 2)
        run.until(lambda: serves_a_line(run))
        other = scraped(get((run.folder / "metrics-address-1.txt").read_text().strip()))
        saved = {
            name for name in other if name.startswith(("slipway_checkpoint_save_seconds", "slipway_last_checkpoint_"))
        }
        assert set(other) == saved  # the first host alone serves the others
        assert open_to_others(run) == []
        for path in tmp_path.glob("*.txt"):
            path.write_bytes(b"\xff" * path.stat().st_size)
        assert run.wait() == 2, run.output()[-4000:]
    finally:
        run.process.terminate()
        run.wait(60)
    [error] = run.events("error")
    assert "is not UTF-8 text: byte 0xff at offset" in error["message"]
    assert str(tmp_path) in error["message"]
    assert len(run.events()) == 1
    assert run.output().count("Initialized JAX distributed on CPU") == 2  # once for each worker
    assert "Traceback" not in run.output().split("Error: ")[-1]


def open_to_others(run: Run) -> list[object]:
    """Return the ports of the run's processes that other machines can reach."""
    ours = {run.process.pid, *(child.pid for child in psutil.Process(run.process.pid).children(recursive=True))}
    return [
        (connection.laddr, psutil.Process(connection.pid).name())
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.pid in ours
        and not is_loopback(str(next(iter(connection.laddr))))
    ]


# --- the trained model ---


def _launcher(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "launcher", *arguments], capture_output=True, text=True, cwd=CHECKOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_trained_model_generates_text(undisturbed: Run) -> None:
    """Its last checkpoint is exported once. Without a KV cache, the exported model generates the same text."""
    arguments = ("generate", str(undisturbed.folder), "def main(", "--temperature", "0", "--max-tokens", "20")
    first, again = (_launcher(*arguments, "-o", "json") for _ in range(2))
    exported = undisturbed.folder / "export" / "16"
    assert first.stderr.startswith(f"Exporting the checkpoint 16 of undisturbed to {exported}, which is done once.\n")
    assert "Exporting" not in again.stderr
    text = json.loads(first.stdout)["text"]
    assert json.loads(again.stdout)["text"] == text
    model = load(exported)
    prompt = model.encode("def main(")
    tokens = list(prompt)
    for _ in range(20):
        tokens.append(int(np.array(model.network(mx.array([tokens]))[0, -1]).argmax()))
    assert text == model.tokenizer.decode(tokens)[len(model.tokenizer.decode(prompt)) :]
    assert (json.loads(first.stdout)["step"], json.loads(first.stdout)["tokens"]) == (16, 20)


def test_a_trained_model_is_better_at_a_task(undisturbed: Run, tmp_path: Path) -> None:
    """The text of the training is likelier for its last checkpoint than for its first, and the report shows both."""
    text = (Path(json.__file__).parent / "decoder.py").read_text()[:4000]
    (tmp_path / "code.jsonl").write_text(json.dumps({"text": text}) + "\n")
    (tmp_path / "code.yaml").write_text(
        "task: code\ndataset_path: json\ndataset_kwargs: {data_files: {test: code.jsonl}}\ntest_split: test\n"
        "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{text}}'\n"
        "metric_list: [{metric: bits_per_byte}]\n"
    )
    bits = {}
    for step in ("0", "best"):
        arguments = ("--tasks", "code", "--tasks-folder", str(tmp_path), "--step", step, "-o", "json")
        ((result,),) = (
            each["results"] for each in json.loads(_launcher("eval", str(undisturbed.folder), *arguments).stdout)
        )
        bits[result["step"]] = result["metrics"]["bits_per_byte"]
    assert bits[16] < bits[0] - 0.3
    (row,) = build([str(undisturbed.folder)]).runs
    assert {one["step"]: one["metrics"]["bits_per_byte"] for one in row["evaluations"]} == bits
