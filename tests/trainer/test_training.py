"""Whole runs under Ray: what they leave behind, and that killing parts of them changes nothing."""

from __future__ import annotations

import ipaddress
import math
import time
from pathlib import Path

import pytest

from tests.trainer.runs import STEPS, Lab, Run, numbers, with_metrics
from tests.trainer.scrape import get, scraped


def test_a_run_learns_and_leaves_metrics_checkpoints_and_tensorboard(undisturbed: Run) -> None:
    metrics = undisturbed.metrics()
    train = [line for line in metrics if "loss" in line]
    held_out = [line for line in metrics if "eval_loss" in line]

    assert [line["step"] for line in train] == list(range(STEPS))
    assert train[-1]["loss"] < train[0]["loss"] - 0.3
    # An untrained model guesses among 512 pieces, a little worse than evenly.
    assert train[0]["loss"] == pytest.approx(math.log(512), abs=1)
    assert [line["step"] for line in held_out] == [0, 5, 10, STEPS]
    assert held_out[-1]["eval_loss"] < held_out[0]["eval_loss"] - 0.3
    for line in train:
        assert line["step_seconds"] > 0
        assert line["tokens_per_second_per_device"] == pytest.approx(2 * 64 / line["step_seconds"], rel=0.01)
        assert line["tflops_per_second_per_device"] > 0
        assert "mfu" not in line  # a CPU has no peak in the table
    assert {path.name for path in (undisturbed.folder / "checkpoints").iterdir()} == {"0", "4", "8", "12"}
    assert list((undisturbed.folder / "tensorboard").rglob("events.out.tfevents.*"))
    assert [event["devices"] for event in undisturbed.events()] == [2]
    assert undisturbed.process.returncode == 0


def test_each_metrics_line_is_printed_with_its_prefix(undisturbed: Run) -> None:
    printed = [line for line in undisturbed.output().splitlines() if "SLIPWAY_METRICS {" in line]
    assert len(printed) == len(undisturbed.metrics())


def test_a_run_serves_the_last_line_of_its_metrics_and_all_that_it_opens_is_on_loopback(lab: Lab) -> None:
    import psutil

    run = lab.start(with_metrics(lab.config("loopback", steps=400, checkpoint_period=1000)))
    try:
        run.until(lambda: run.step() >= 1)
        run.until(lambda: serves_a_line(run))
        other = scraped(get((run.folder / "metrics-address-1.txt").read_text().strip()))
        assert {name for name in other if not name.startswith("slipway_checkpoint_save_seconds")} == set()
        ours = {run.process.pid, *(child.pid for child in psutil.Process(run.process.pid).children(recursive=True))}
        open_to_others = [
            (connection.laddr, psutil.Process(connection.pid).name())
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
            and connection.pid in ours
            and not is_loopback(str(next(iter(connection.laddr))))
        ]
    finally:
        run.process.terminate()
        run.wait(60)
    assert open_to_others == []


def serves_a_line(run: Run) -> bool:
    """Whether what is served is a line of metrics.jsonl; between two steps it may be half of each."""
    served = scraped(get((run.folder / "metrics-address-0.txt").read_text().strip()))
    assert (served["slipway_target_steps"], served["slipway_attempt"], served["slipway_restarts_total"]) == (400, 1, 0)
    assert 0 < served["slipway_goodput_ratio"] <= 1
    assert not any(name.startswith(("slipway_hbm", "slipway_chip", "slipway_mfu")) for name in served)  # it is a CPU
    steps = [line for line in run.metrics() if "loss" in line]
    counted = steps[: int(served["slipway_step"]) + 1]
    held_out = [line["eval_loss"] for line in run.metrics() if "eval_loss" in line and line["step"] <= len(counted)]
    told = {
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
    return {name: served[name] for name in told} == told and seconds == pytest.approx([total, total])


def is_loopback(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_changes_no_number(lab: Lab, undisturbed: Run, rank: int) -> None:
    run = lab.start(lab.config(f"killed-rank-{rank}"))
    # Steps take a fraction of what it takes to write a checkpoint.
    run.until(lambda: (run.folder / "checkpoints" / "4").is_dir() and run.step() >= 5)
    run.descendants("ray::RayTrainWorker")[rank].kill()
    assert run.wait() == 0, run.output()[-4000:]

    starts = [event["step"] for event in run.events()]
    assert starts in ([0, 5], [0, 9])
    assert any(event["message"].startswith(f"worker {rank}: ") for event in run.events("worker_failed"))
    assert numbers(run.metrics()) == numbers(undisturbed.metrics())


def test_a_worker_killed_while_it_writes_a_checkpoint_changes_no_number(lab: Lab, undisturbed: Run) -> None:
    run = lab.start(lab.config("killed-in-checkpoint"))

    def writing() -> bool:
        return any(path.name.startswith("4.") for path in (run.folder / "checkpoints").glob("*tmp*"))

    run.until(lambda: writing() or run.step() >= 6)
    run.descendants("ray::RayTrainWorker")[1].kill()
    assert run.wait() == 0, run.output()[-4000:]

    assert len(run.events()) == 2
    assert numbers(run.metrics()) == numbers(undisturbed.metrics())
    assert not list((run.folder / "checkpoints").glob("*tmp*"))


def test_tensorboard_shows_no_step_twice_after_a_restart(lab: Lab, undisturbed: Run) -> None:
    """By TensorBoard's own rule: a session that starts at step S takes back what earlier files say from S on."""
    killed = lab.root / "killed-rank-0"
    if not killed.exists():
        test_a_killed_worker_changes_no_number(lab, undisturbed, 0)
    assert tensorboard_steps(killed) == list(range(STEPS))


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
                break  # the file of a killed process may end within a record
            event = Event.FromString(record)
            if event.session_log.status == SessionLog.START:
                steps = [step for step in steps if step < event.step]
            steps.extend(event.step for value in event.summary.value if value.tag == "learning/loss")
    return steps


def test_the_driver_of_a_ray_that_was_killed_ends_soon_and_the_next_goes_on(lab: Lab, undisturbed: Run) -> None:
    config = lab.config("ray-killed")
    run = lab.start(config)
    run.until(lambda: run.step() >= 6)
    for process in [*run.descendants("gcs_server"), *run.descendants("raylet"), *run.descendants("ray::")]:
        if process.is_running():
            process.kill()
    killed = time.monotonic()
    assert run.wait(60) != 0
    assert time.monotonic() - killed < 30

    again = lab.train(config)
    assert again.process.returncode == 0, again.output()[-4000:]
    assert numbers(again.metrics()) == numbers(undisturbed.metrics())


def test_a_killed_driver_leaves_nothing_running_and_the_next_goes_on(lab: Lab, undisturbed: Run) -> None:
    import psutil

    config = lab.config("driver-killed")
    run = lab.start(config)
    run.until(lambda: run.step() >= 6)
    children = psutil.Process(run.process.pid).children(recursive=True)
    run_agents = [*run.descendants("ray::DashboardAgent"), *run.descendants("ray::RuntimeEnvAgent")]
    run.process.kill()
    run.wait(30)
    # Ray's two agents, which hold no resources, notice after a minute of their own.
    agents = {process.pid for process in run_agents}
    _, alive = psutil.wait_procs([process for process in children if process.pid not in agents], timeout=30)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []

    again = lab.train(config)
    assert again.process.returncode == 0, again.output()[-4000:]
    assert numbers(again.metrics()) == numbers(undisturbed.metrics())


def test_a_run_that_is_trained_already_does_nothing(lab: Lab, undisturbed: Run) -> None:
    before = undisturbed.metrics()
    again = lab.train(lab.root / "undisturbed.json")
    assert again.process.returncode == 0
    assert "is trained already" in again.output()
    assert again.metrics() == before


def test_a_config_that_maxtext_refuses_exits_2_and_is_not_restarted(lab: Lab) -> None:
    run = lab.train(lab.config("refused", decoder_block="llama9"))
    assert run.process.returncode == 2, run.output()[-4000:]
    [error] = run.events("error")
    assert "decoder_block" in error["message"]
    assert run.events() == []
    assert run.output().count("Initialized JAX distributed on CPU") == 2  # once for each of two workers
    assert "Traceback" not in run.output().split("Error: ")[-1]


def test_text_that_cannot_be_decoded_in_the_middle_exits_2_and_names_the_file(lab: Lab, tmp_path: Path) -> None:
    """The check at the start saw good text; then somebody overwrote a file."""
    for index in range(8):
        (tmp_path / f"{index}.txt").write_text(f"Text number {index} is short but it is text.\n" * 200)
    tokenizer = {"kind": "sentencepiece", "path": str(lab.tokenizer)}
    data = {"files": [str(tmp_path)], "heldOut": {"fraction": 0.2}, "tokenizer": tokenizer}
    run = lab.start(lab.config("undecodable", data=data, steps=100_000, checkpoint_period=50_000, eval_interval=None))
    run.until(lambda: run.step() >= 2)
    for path in tmp_path.glob("*.txt"):
        path.write_bytes(b"\xff" * path.stat().st_size)
    assert run.wait() == 2, run.output()[-4000:]
    [error] = run.events("error")
    assert "is no UTF-8 text: byte 0xff at offset" in error["message"]
    assert str(tmp_path) in error["message"]
    assert len(run.events()) == 1
