"""The record that the trainer keeps, and what it notices while it trains; the launcher reads it in the same way."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from launcher.products.records import api, form
from tests.unit.notification_servers import http, wait_for
from trainer import metrics
from trainer.config import RunConfig
from trainer.reporting import marks, notifier, process, record
from trainer.reporting import reporter as reporter_module
from trainer.reporting.reporter import Reporter


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a process of its own."""
    monkeypatch.setattr(process, "_of_process", None)
    monkeypatch.setattr(metrics, "listeners", [])
    monkeypatch.delenv("SLIPWAY_NOTIFY", raising=False)


def run_config(folder: Path, **keys: Any) -> RunConfig:
    (folder / "demo").mkdir(exist_ok=True)
    tree = {
        "run": {"name": "demo", "kind": "job-set"},
        "team": {"name": "research"},
        "slice": {"accelerator": "v6e", "count": 2, "provisioning": "spot"},
        "accelerator": {"name": "v6e", "kind": "tpu", "topology": "4x4", "hosts": 4, "chips": 16},
        "storage": {"kind": "gcsfuse", "bucket": "lab-runs", "mountPath": str(folder)},
        "image": {"repository": "example.com/trainer", "digest": "sha256:ab"},
        "train": {"steps": 30},
        **keys,
    }
    return RunConfig(folder / "run.json", tree)


def line(step: int, seconds: float = 0.5) -> dict[str, Any]:
    rate = 1000.0
    return {
        "step": step,
        "loss": 3.0,
        "step_seconds": seconds,
        "tokens_per_second_per_device": rate,
        "time": metrics.now(),
    }


def read(folder: Path) -> Any:
    """Return the record as the launcher reads it."""
    found = api.read_records(folder)
    assert found.problems == []
    (run,) = found.records
    jsonschema.validate(run, form.schema())
    assert form.totals(run["attempts"], form._seconds(run["times"]["ended"] or run["written"])) == {
        key: pytest.approx(run[key], abs=0.01) if key == "goodput" else run[key] for key in ("seconds", "goodput")
    }
    return run


def train(config: RunConfig, first: int, last: int, end: str) -> None:
    reporter = Reporter(config, seconds_between_looks=0.05)
    reporter.enter("compile")
    reporter.loop_starts(step=first, steps=30)
    reporter.enter("training")
    for step in range(first, last):
        reporter.line(line(step), devices=32)
    reporter.waited_for_data(0.001)
    reporter.enter("checkpoint")
    reporter.checkpoint_saved()
    if end:
        reporter.close(end)


def test_a_run_that_is_killed_and_resumed(tmp_path: Path) -> None:
    config = run_config(tmp_path)
    train(config, 0, 10, "")  # killed: it writes no end
    wait_for(lambda: (tmp_path / "demo/run.record.json").is_file() and read(tmp_path)["steps"] == 10)
    killed = read(tmp_path)
    assert (killed["state"], killed["attempts"][0]["ended"], killed["times"]["ended"]) == ("running", None, None)
    train(config, 8, 30, "succeeded")
    process.finish(config, "succeeded", final=True)
    done = read(tmp_path)
    assert (done["state"], done["steps"], done["steps_wanted"], done["tokens"]) == ("succeeded", 30, 30, 480_000)
    assert [attempt["from_step"] for attempt in done["attempts"]] == [0, 8]
    assert done["attempts"][0]["ended"] is not None
    assert (done["chips"], done["namespace"], done["folder"]) == (32, "research", "gs://lab-runs/demo")
    assert (done["image"], done["config"], done["uid"]) == ("example.com/trainer@sha256:ab", config.digest, "")
    assert done["seconds"]["failures"] > 0, "two steps were done again"
    causes = {cause: seconds for cause, seconds in done["seconds"].items() if cause != "total"}
    assert sum(causes.values()) == pytest.approx(done["seconds"]["total"], abs=0.02)


def test_a_config_that_is_refused_before_it_trains(tmp_path: Path) -> None:
    config = run_config(tmp_path)
    process.of_process(config).on_event("error", {"message": "train.steps is 3; set more."})
    process.finish(config, "failed", final=True)
    run = read(tmp_path)
    assert (run["state"], run["reason"], run["steps"]) == ("failed", "train.steps is 3; set more.", None)
    assert run["times"]["ended"] is not None


def test_a_damaged_record_and_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = run_config(tmp_path)
    (tmp_path / "demo/run.record.json").write_text("{")
    train(config, 0, 3, "succeeded")
    assert read(tmp_path)["steps"] == 3
    (tmp_path / "demo").rename(tmp_path / "gone")
    started = time.monotonic()
    train(config, 0, 3, "succeeded")
    process.finish(config, "succeeded", final=True)
    assert time.monotonic() - started < 20
    assert capsys.readouterr().err.count("The record of the run cannot be written: No such file or directory.") == 1


def test_what_it_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow run, an old checkpoint and a stall; each once, and again after the run has recovered."""
    notify = {"stalledSeconds": 0.3, "checkpointSeconds": 0.2, "slowdown": 1.3, "events": []}
    with http() as server:
        monkeypatch.setenv("SLIPWAY_NOTIFY", f"json {server.url}")
        config = run_config(tmp_path, notify=notify, tracking={"forecastStepSeconds": 0.1})
        reporter = Reporter(config, seconds_between_looks=0.02)
        reporter.loop_starts(step=0, steps=30)
        reporter.enter("training")
        for step in range(12):
            reporter.line(line(step, seconds=0.01 if step < 1 else 0.02 * 10), devices=1)
        monkeypatch.setattr("trainer.reporting.reporter._TIMES_SLOWER", 1)
        wait_for(lambda: {body["event"] for body in server.bodies} >= {"stalled", "checkpoint-too-old"})
        reporter.checkpoint_saved()
        reporter.close("failed")
        process.finish(config, "failed", final=False)
    events = [body["event"] for body in server.bodies]
    assert sorted(set(events)) == ["checkpoint-too-old", "failed", "slower-than-forecast", "stalled"]
    assert events.count("slower-than-forecast") == 1
    slow = next(body for body in server.bodies if body["event"] == "slower-than-forecast")
    assert slow["text"] == (
        "Run demo (team research) is slower than its forecast. A step takes 0.20 s, 100 % more than the forecast of "
        "0.10 s."
    )
    marks = {path.name for path in (tmp_path / "demo/notified").iterdir()}
    assert "failed-1.json" in marks


def test_events_that_a_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http() as server:
        monkeypatch.setenv("SLIPWAY_NOTIFY", f"events started failed preempted ended\njson {server.url}")
        config = run_config(tmp_path)
        sender = process.of_process(config)
        metrics.write_event(config.folder, "loop_started", step=0, steps=30, devices=1)
        metrics.write_event(config.folder, "worker_failed", message="worker 0 was killed; resuming from step 8")
        metrics.write_event(config.folder, "loop_started", step=8, steps=30, devices=1)
        metrics.write_event(config.folder, "preempted", message="A host received a stop signal.", step=9)
        sender.close()
    assert [body["event"] for body in server.bodies] == ["started", "failed", "preempted"]
    assert "resuming from step 8" in server.bodies[1]["text"]


def test_a_server_that_hangs_delays_no_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.notification_servers import silent

    with silent() as server:
        monkeypatch.setenv("SLIPWAY_NOTIFY", f"json {server.url}")
        config = run_config(tmp_path, notify={"events": ["first-step"], "stalledSeconds": 0})
        reporter = Reporter(config)
        started = time.perf_counter()
        for step in range(1000):
            reporter.enter("training")
            reporter.line(line(step), devices=1)
        assert time.perf_counter() - started < 5
        reporter.close("succeeded")
        assert json.loads((tmp_path / "demo/run.record.json").read_text())["steps"] == 1000


def test_a_killed_attempt_is_notified_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that was killed wrote no event; also if Ray's controller notified, once."""
    with http() as server:
        monkeypatch.setenv("SLIPWAY_NOTIFY", f"json {server.url}")
        config = run_config(tmp_path)
        train(config, 0, 10, "")
        wait_for(lambda: (tmp_path / "demo/run.record.json").is_file() and read(tmp_path)["steps"] == 10)
        monkeypatch.setattr(process, "_of_process", None)
        monkeypatch.setattr(metrics, "listeners", [])
        train(config, 8, 30, "succeeded")
        process.of_process(config).send("failed", "worker 0 was killed", attempt=1)
        process.finish(config, "succeeded", final=True)
    assert [(body["event"], body["attempt"]) for body in server.bodies] == [("failed", 1), ("ended", 2)]
    assert server.bodies[0]["text"].endswith("Attempt 1 was killed; attempt 2 has started.")


def test_the_clocks_of_the_hosts_differ(tmp_path: Path) -> None:
    """The driver's clock is hours ahead of the host's that trained: its end belongs to the attempt of that host."""
    config = run_config(tmp_path)
    process.of_process(config)  # the driver
    train(config, 0, 10, "failed")
    path = tmp_path / "demo/run.record.json"
    kept = json.loads(path.read_text())
    kept["attempts"][0] |= dict.fromkeys(("started", "seen", "ended"), "2020-01-01T00:00:00.000Z")
    path.write_text(json.dumps(kept))
    process.finish(config, "failed", final=True)
    (attempt,) = json.loads(path.read_text())["attempts"]
    assert (attempt["started"], attempt["end"]) == ("2020-01-01T00:00:00.000Z", "failed")


def test_storage_that_hangs_delays_no_method_and_no_notification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads of the record and of the marks never end, as on a mount whose bucket does not answer."""
    hang = threading.Event()
    for module, name in ((record, "read"), (record, "write"), (marks, "claim"), (marks, "settle")):
        monkeypatch.setattr(module, name, lambda *_: hang.wait())
    for module, name in (
        (reporter_module, "_SECONDS_OF_STORAGE"),
        (process, "_SECONDS_TO_READ"),
        (process, "_SECONDS_TO_END"),
        (notifier, "_SECONDS_FOR_A_MARK"),
    ):
        monkeypatch.setattr(module, name, 0.1)
    try:
        with http() as server:
            monkeypatch.setenv("SLIPWAY_NOTIFY", f"json {server.url}")
            config = run_config(tmp_path, notify={"stalledSeconds": 0.2, "events": ["stalled", "ended"]})
            monkeypatch.setattr(reporter_module, "_TIMES_SLOWER", 0)
            reporter = Reporter(config, seconds_between_looks=0.05)
            started = time.perf_counter()
            reporter.enter("training")
            reporter.line(line(1), devices=1)
            assert time.perf_counter() - started < 5
            wait_for(lambda: "stalled" in [body["event"] for body in server.bodies])
            reporter.close("failed")
            monkeypatch.setattr(process, "_SECONDS_TO_END", 1.0)
            process.finish(config, "failed", final=True)
            wait_for(lambda: "ended" in [body["event"] for body in server.bodies])
    finally:
        hang.set()


def test_a_line_that_is_not_as_expected_ends_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter(run_config(tmp_path))
    reporter.line({"loss": None}, devices=1)
    reporter.line({"loss": 1.0, "step": "x"}, devices=1)
    reporter.close("failed")
    assert capsys.readouterr().err.count("Training continues.") == 1
