"""The monitoring of a run: the metrics that it serves, and its lines in Weights & Biases."""

from __future__ import annotations

import importlib
import json
import math
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import prometheus
from tests.trainer.runs import CHECKOUT
from tests.trainer.scrape import LABELS as NAMES
from tests.trainer.scrape import get, scraped
from trainer import checks
from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.telemetry import Telemetry
from trainer.telemetry.chips import Chips, Sampler
from trainer.telemetry.prometheus import Endpoint, address_file
from trainer.telemetry.storage import Storage, reader

LABELS = dict(zip(NAMES, ("llama", "research", "0"), strict=True))
STARTED = datetime(2026, 1, 1, tzinfo=UTC)


def run_config(folder: Path, *, kind: str = "local", port: int = 0, **wandb: str) -> RunConfig:
    (folder / "llama").mkdir(exist_ok=True)
    tree = {
        "run": {"name": "llama", "kind": kind},
        "team": {"name": "research"},
        "slice": {"accelerator": "cpu"},
        "accelerator": {"name": "cpu", "kind": "cpu", "hosts": 1, "chips": 1, "chipsPerHost": 1},
        "storage": {"kind": "local", "mountPath": str(folder)},
        "tracking": {"metricsPort": port, "wandb": wandb},
        "train": {"steps": 30, "dataset_type": "synthetic"},
    }
    return RunConfig(folder / "run.json", tree)


def line(step: int, seconds: float = 2.0) -> dict[str, Any]:
    return {
        "step": step,
        "loss": 10 - step / 10,
        "step_seconds": seconds,
        "tokens_per_second_per_device": 1000.5,
        "tflops_per_second_per_device": 400.25,
        "learning_rate": 3e-4,
        "mfu": 0.44,
        "time": "2026-01-01T00:00:00.000Z",
    }


def evaluation(step: int, loss: float) -> dict[str, Any]:
    return {"step": step, "eval_loss": loss, "time": "2026-01-01T00:00:00.000Z"}


def start(seconds_ago: float) -> dict[str, Any]:
    at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    return {"event": "loop_started", "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


def exposed(endpoint: Endpoint) -> dict[str, float]:
    from prometheus_client import generate_latest

    return scraped(generate_latest(endpoint.registry).decode())


@pytest.fixture
def endpoint() -> Endpoint:
    """Return the metrics of a second attempt, which resumed at step 2 of 30 on 4 devices. The first start was 100
    seconds ago."""
    made = Endpoint(LABELS)
    before = [evaluation(0, 11.0), line(0, 30.0), line(1), evaluation(2, 9.5)]
    made.loop_starts([start(100), start(20)], before, step=2, steps=30, devices=4)
    return made


# --- Prometheus -----------------------------------------------------------------------------------------------------


def test_the_last_line_is_served(endpoint: Endpoint) -> None:
    endpoint.line(line(2, 1.5))
    found = exposed(endpoint)
    assert found["slipway_step"] == 2
    assert found["slipway_target_steps"] == 30
    assert found["slipway_devices"] == 4
    assert found["slipway_loss"] == 9.8
    assert found["slipway_eval_loss"] == 9.5
    assert found["slipway_last_step_seconds"] == 1.5
    assert found["slipway_device_tokens_per_second"] == 1000.5
    assert found["slipway_tokens_per_second"] == 4002
    assert found["slipway_device_flops_per_second"] == 400.25e12
    assert found["slipway_mfu_ratio"] == 0.44
    assert found["slipway_learning_rate"] == 3e-4
    assert found["slipway_attempt"] == 2
    assert (found["slipway_restarts_total"], found["slipway_preemptions_total"]) == (1, 0)


def test_a_preemption_is_not_a_restart() -> None:
    endpoint = Endpoint(LABELS)
    preempted = {"event": "preempted", "time": start(0)["time"], "message": "stopped", "step": 3}
    failed = {"event": "worker_failed", "time": start(0)["time"], "message": "worker 0 was killed"}
    events = [start(90), preempted, preempted, start(60), failed, start(30), preempted]
    endpoint.loop_starts(events, [], step=3, steps=30, devices=4)
    found = exposed(endpoint)
    counted = [found[f"slipway_{name}"] for name in ("attempt", "restarts_total", "preemptions_total")]
    assert counted == [3, 1, 1]


def test_steps_of_this_process_are_counted_in_buckets(endpoint: Endpoint) -> None:
    for step, seconds in enumerate([0.4, 1.2, 1.3, 400.0], start=2):
        endpoint.line(line(step, seconds))
    found = exposed(endpoint)
    assert found["slipway_step_duration_seconds_count"] == 4
    assert found["slipway_step_duration_seconds_sum"] == pytest.approx(402.9)
    buckets = {key: value for key, value in found.items() if key.startswith("slipway_step_duration_seconds_bucket")}
    assert buckets["slipway_step_duration_seconds_bucket{le=0.25}"] == 0
    assert buckets["slipway_step_duration_seconds_bucket{le=0.5}"] == 1
    assert buckets["slipway_step_duration_seconds_bucket{le=1.5}"] == 3
    assert buckets["slipway_step_duration_seconds_bucket{le=300.0}"] == 3
    assert buckets["slipway_step_duration_seconds_bucket{le=+Inf}"] == 4


def test_goodput_counts_each_step_once_and_all_of_the_time_since_the_first_start(endpoint: Endpoint) -> None:
    endpoint.line(line(2, 8.0))
    endpoint.line(evaluation(3, 9.0))
    found = exposed(endpoint)
    assert found["slipway_productive_seconds"] == 40  # 30 + 2 from the first attempt, and 8 from this one
    assert found["slipway_elapsed_seconds"] == pytest.approx(100, abs=30)
    assert found["slipway_goodput_ratio"] == pytest.approx(40 / found["slipway_elapsed_seconds"], rel=0.01)
    assert found["slipway_eval_loss"] == 9.0
    assert found["slipway_step"] == 2  # an evaluation is not a step


def test_a_missing_value_is_absent_and_not_zero() -> None:
    endpoint = Endpoint(LABELS)
    endpoint.loop_starts([start(1)], [], step=0, steps=3, devices=1)
    assert not {"slipway_loss", "slipway_step", "slipway_mfu_ratio", "slipway_eval_loss"} & set(exposed(endpoint))
    endpoint.line(
        {key: value for key, value in line(0).items() if key != "mfu"} | {"tflops_per_second_per_device": None}
    )
    found = exposed(endpoint)
    assert found["slipway_loss"] == 10
    assert not {"slipway_mfu_ratio", "slipway_device_flops_per_second", "slipway_eval_loss"} & set(found)


def test_a_loss_that_is_nan_is_served_as_nan(endpoint: Endpoint) -> None:
    endpoint.line(line(2) | {"loss": float("nan")})
    assert math.isnan(exposed(endpoint)["slipway_loss"])


def test_other_hosts_serve_no_metrics_of_the_run() -> None:
    assert exposed(Endpoint(LABELS | {"host": "1"})) == {}


def test_checkpoints_are_counted(endpoint: Endpoint) -> None:
    endpoint.checkpoint_saved(0.25)
    endpoint.checkpoint_saved(0.5)
    found = exposed(endpoint)
    assert (found["slipway_checkpoint_save_seconds_count"], found["slipway_checkpoint_save_seconds_sum"]) == (2, 0.75)


def test_the_times_of_progress_and_of_checkpoints_start_with_the_loop() -> None:
    endpoint = Endpoint(LABELS)
    endpoint.loop_starts([start(500)], [], step=0, steps=3, devices=1)
    began = exposed(endpoint)
    progress, checkpoint = "slipway_last_progress_timestamp_seconds", "slipway_last_checkpoint_timestamp_seconds"
    assert began[progress] == pytest.approx(time.time(), abs=30)
    assert began[checkpoint] == pytest.approx(time.time(), abs=30)
    endpoint.line(line(0))
    stepped = exposed(endpoint)
    assert stepped[progress] > began[progress]
    assert stepped[checkpoint] == began[checkpoint]
    endpoint.checkpoint_saved(0.25)
    saved = exposed(endpoint)
    assert saved[progress] == stepped[progress]
    assert saved[checkpoint] > stepped[checkpoint]
    endpoint.line(evaluation(1, 9.0))
    assert exposed(endpoint)[progress] > saved[progress]


def test_a_run_without_checkpoints_or_forecast_serves_neither(tmp_path: Path) -> None:
    config = run_config(tmp_path)
    names = ("slipway_last_checkpoint_timestamp_seconds", "slipway_forecast_step_seconds")
    for checkpoints, forecast in ((True, 1.25), (False, 0)):
        tracking = {"metricsPort": 9464, "forecastStepSeconds": forecast}
        train = {**run_config(tmp_path).train, "enable_checkpointing": checkpoints}
        config = RunConfig(config.path, {**config.tree, "tracking": tracking, "train": train})
        (config.folder / "events.jsonl").write_text(json.dumps(start(5)) + "\n")
        with Telemetry(config, host=0, devices=[]) as telemetry:
            telemetry.loop_starts(step=0, steps=3, devices=1)
            served = scraped(get(address_file(config.folder, 0).read_text().strip()))
        assert [name in served for name in names] == [checkpoints, bool(forecast)]
        assert served.get(names[1], 0) == forecast


def test_the_first_host_serves_the_size_of_the_storage(tmp_path: Path) -> None:
    config = run_config(tmp_path, port=9464)
    stats = os.statvfs(tmp_path)
    with Telemetry(config, host=0, devices=[]), Telemetry(config, host=1, devices=[]):
        first, second = (address_file(config.folder, host).read_text().strip() for host in (0, 1))
        deadline = time.monotonic() + 10
        while not (served := scraped(get(first))) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert scraped(get(second)) == {}
    assert served["slipway_storage_size_bytes"] == stats.f_blocks * stats.f_frsize
    assert 0 < served["slipway_storage_available_bytes"] <= served["slipway_storage_size_bytes"]


def test_a_mount_that_hangs_does_not_delay_a_scrape(endpoint: Endpoint) -> None:
    """The read blocks on an event, because only root can create a mount that hangs."""
    hangs = threading.Event()

    def read() -> dict[str, list[float]]:
        hangs.wait()
        return {}

    sampler = Sampler(read).start()
    endpoint.registry.register(Storage(LABELS, sampler))
    began = time.monotonic()
    served = scraped(get(f"http://127.0.0.1:{endpoint.listen(0, loopback=True)}/metrics"))
    assert time.monotonic() - began < 5
    assert served["slipway_attempt"] == 2
    assert not [name for name in served if "storage" in name]
    endpoint.close()
    sampler.stop()
    hangs.set()


def test_a_mount_that_fails_is_reported_once_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    read = reader(folder)
    assert read() == read() == {}
    assert capsys.readouterr().err == (
        f"The size of the run's storage is not served: [Errno 2] No such file or directory: '{folder}'. "
        "Training continues.\n"
    )
    folder.mkdir()
    assert set(read()) == {"size", "available"}


def test_a_local_run_serves_on_a_free_port_of_loopback_and_records_its_address(tmp_path: Path) -> None:
    config = run_config(tmp_path, port=9464)
    two = [Telemetry(config, host=host, devices=[]) for host in (0, 1)]
    try:
        urls = [address_file(config.folder, host).read_text().strip() for host in (0, 1)]
        assert len(set(urls)) == 2
        for url in urls:
            assert url.startswith("http://127.0.0.1:")
            assert not {key for key in scraped(get(url)) if "storage" not in key}  # before the loop starts
    finally:
        for each in two:
            each.__exit__(None)


def test_a_port_in_use_is_reported_once_and_training_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with Telemetry(run_config(tmp_path, kind="ray-job", port=port), host=0, devices=[]) as telemetry:
            telemetry.loop_starts(step=0, steps=3, devices=1)
            telemetry.line(line(0))
            telemetry.checkpoint_saved(1.0)
    assert capsys.readouterr().err == (
        f"No metrics for Prometheus are served: port {port} (tracking.metricsPort) is in use on this host. "
        "Training continues.\n"
    )


def test_a_pods_port_is_open_to_other_machines(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    config = run_config(tmp_path, kind="job-set", port=port)
    (config.folder / "events.jsonl").write_text(json.dumps(start(5)) + "\n")
    with Telemetry(config, host=0, devices=[]) as telemetry:
        telemetry.loop_starts(step=0, steps=3, devices=1)
        assert scraped(get(f"http://127.0.0.1:{port}/metrics"))["slipway_attempt"] == 1
    assert not address_file(config.folder, 0).exists()


def test_without_a_port_nothing_is_served(tmp_path: Path) -> None:
    with Telemetry(run_config(tmp_path), host=0, devices=[]) as telemetry:
        telemetry.loop_starts(step=0, steps=3, devices=1)
        telemetry.line(line(0))
    assert not address_file(tmp_path / "llama", 0).exists()


def test_a_real_prometheus_accepts_every_metric(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.line(line(2, 1.5))
    endpoint.checkpoint_saved(0.5)
    with prometheus.running(tmp_path, {"slipway": f"127.0.0.1:{endpoint.listen(0, loopback=True)}"}) as server:
        found = server.until(lambda: server.ask('{__name__=~"slipway_.*"}'))
        [median] = server.ask("histogram_quantile(0.5, slipway_step_duration_seconds_bucket)")
    served = exposed(endpoint)
    named = {each["metric"]["__name__"] for each in found}
    assert named >= {key.partition("{")[0] for key in served if not key.endswith("_created")}
    for each in found:
        assert {key: each["metric"][key] for key in LABELS} == LABELS
        name = each["metric"]["__name__"]
        if name in served and name not in ("slipway_elapsed_seconds", "slipway_goodput_ratio"):
            assert float(each["value"][1]) == served[name], name
    assert 1 <= float(median["value"][1]) <= 1.5
    endpoint.close()


# --- Chips ----------------------------------------------------------------------------------------------------------


class Device:
    """Replaces JAX's device for a TPU, because no TPU is available here."""

    def __init__(self, number: int, stats: dict[str, int] | None) -> None:
        self.id = number
        self._stats = stats

    def memory_stats(self) -> dict[str, int] | None:
        return self._stats


class WithoutStatistics(Device):
    def memory_stats(self) -> dict[str, int] | None:
        raise NotImplementedError("no statistics on this platform")


def test_memory_is_served_for_each_device_with_statistics() -> None:
    endpoint = Endpoint(LABELS)
    stats = {"bytes_in_use": 3 << 30, "bytes_limit": 32 << 30, "peak_bytes_in_use": 4 << 30, "num_allocs": 7}
    devices = [Device(4, stats), Device(5, stats | {"bytes_in_use": 0}), Device(6, None), WithoutStatistics(7, None)]
    endpoint.registry.register(Chips(devices, LABELS, None))
    assert exposed(endpoint) == {
        "slipway_hbm_used_bytes{device=4}": 3 << 30,
        "slipway_hbm_used_bytes{device=5}": 0,
        "slipway_hbm_peak_bytes{device=4}": 4 << 30,
        "slipway_hbm_peak_bytes{device=5}": 4 << 30,
        "slipway_hbm_limit_bytes{device=4}": 32 << 30,
        "slipway_hbm_limit_bytes{device=5}": 32 << 30,
    }


def test_libtpus_percentages_are_served_as_ratios() -> None:
    """libtpu's values are invented here: without chips, libtpu waits minutes for Google's metadata."""
    sampler = Sampler(lambda: {"duty_cycle_pct": [100.0, 42.5], "tensorcore_util": [12.5]}).start()
    endpoint = Endpoint(LABELS)
    endpoint.registry.register(Chips([], LABELS, sampler))
    deadline = time.monotonic() + 10
    while not (found := exposed(endpoint)) and time.monotonic() < deadline:
        time.sleep(0.01)
    sampler.stop()
    assert found == {
        "slipway_chip_duty_cycle_ratio{chip=0}": 1.0,
        "slipway_chip_duty_cycle_ratio{chip=1}": 0.425,
        "slipway_tensorcore_utilization_ratio{core=0}": 0.125,
    }


def test_a_failure_of_libtpu_is_reported_once_and_its_metrics_are_absent(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> dict[str, list[float]]:
        raise RuntimeError("no TPU here")

    sampler = Sampler(fail).start()
    deadline = time.monotonic() + 10
    while not (printed := capsys.readouterr().err) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert printed == "libtpu reports no metrics of the chips: no TPU here\n"
    assert list(Chips([], LABELS, sampler).collect()) == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("managed_mldiagnostics", r'google-cloud-mldiagnostics is not installed; .*"slipway-launcher\[tpu\]"'),
        ("enable_goodput_recording", r"ml-goodput-measurement is not installed; "),
        ("use_vertex_tensorboard", r"cloud-accelerator-diagnostics is not installed; "),
        ("dump_hlo", r"^train.dump_hlo copies files to a bucket; set train.dump_hlo_gcs_dir: gs://BUCKET/FOLDER\.$"),
        ("dump_jaxpr", r"set train.dump_jaxpr_gcs_dir: gs://BUCKET/FOLDER\.$"),
    ],
)
def test_features_of_google_cloud_require_their_package_or_their_bucket(tmp_path: Path, key: str, message: str) -> None:
    """MaxText would end late, or train without them and print only a line. The extra `train` lacks the packages."""
    config = run_config(tmp_path)
    tree = {**config.tree, "train": {**config.train, key: True}}
    with pytest.raises(ConfigError, match=message):
        checks.check(RunConfig(config.path, tree))


# --- Weights & Biases -----------------------------------------------------------------------------------------------


ATTEMPT = """
import json, os, sys, time
from pathlib import Path
import psutil
from trainer.config import RunConfig
from trainer.telemetry.weights_and_biases import Upload

folder, before, after, end = Path(sys.argv[1]), *map(json.loads, sys.argv[2:4]), sys.argv[4]
upload = Upload(RunConfig(folder / "run.json", json.loads((folder / "run.json").read_text())), before)
for line in after:
    upload.line(line)
if end == "killed":
    while not list(folder.glob("llama/wandb/offline-run-*")):
        pass
    os.kill(os.getpid(), 9)
if end == "stopped":
    while not (cores := [each for each in psutil.Process().children() if each.name() == "wandb-core"]):
        pass
upload.close(patient=end != "stopped")
print("trained on", time.time())
"""


def attempt(config: RunConfig, before: list[Any], after: list[Any], end: str, **more: str) -> tuple[str, str]:
    """Run one start of the run in a separate process. Returns its stdout and stderr.

    before: the lines in metrics.jsonl at the start; after: the lines of the training; end: killed, stopped or done.
    """
    config.path.write_text(json.dumps(config.tree))
    command = [sys.executable, "-c", ATTEMPT, str(config.path.parent), json.dumps(before), json.dumps(after), end]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")} | more
    done = subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    return done.stdout, done.stderr


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a .wandb file: LevelDB's log format in blocks of 32 KiB, after W&B's own 7 bytes."""
    wandb_internal_pb2: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    raw, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(raw):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", raw, at + 4)
        whole += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a complete record, or its last part
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the history as W&B shows it, one row per step."""
    found = []
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            found.append(
                {key: value for key, value in items.items() if not key.startswith("_")}
                | {"step": record.history.step.num}
            )
    return found


def test_an_offline_run_is_complete_after_a_kill_and_has_each_step_once(tmp_path: Path) -> None:
    config = run_config(tmp_path, project="demo", mode="offline")
    attempt(config, [], [evaluation(0, 11.0), *map(line, range(6))], "killed")
    kept = [evaluation(0, 11.0), *map(line, range(4))]
    printed, error = attempt(config, kept, [*map(line, range(4, 8)), evaluation(8, 9.0)], "done")
    assert printed.startswith("trained on"), error
    [file] = (tmp_path / "llama" / "wandb").glob("offline-run-*/*.wandb")
    found = rows(file)
    assert [row["step"] for row in found] == list(range(8))
    assert [row["loss"] for row in found] == [line(step)["loss"] for step in range(8)]
    assert {row["step"]: row["eval_loss"] for row in found if "eval_loss" in row} == {0: 11.0, 7: 9.0}
    number = json.loads((tmp_path / "llama" / "wandb.json").read_text())["id"]
    assert number.startswith("llama-")
    [run] = [record.run for record in records(file) if record.WhichOneof("record_type") == "run"]
    assert (run.run_id, run.project, run.display_name) == (number, "demo", "llama")


def test_a_server_that_does_not_respond_does_not_delay_a_stopped_process(tmp_path: Path) -> None:
    config = run_config(tmp_path, project="demo", mode="online")
    with socket.socket() as silent:  # it accepts connections, but never responds
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        printed, error = attempt(config, [], [line(0)], "stopped", WANDB_BASE_URL=address, WANDB_API_KEY="0" * 40)
        ended = time.time()
    # A busy machine needs seconds to end a process. A process that is not stopped waits a minute for the server.
    assert ended - float(printed.split()[-1]) < 30, error
    assert "Traceback" not in error


def test_without_a_server_training_continues(tmp_path: Path) -> None:
    config = run_config(tmp_path, project="demo", mode="online")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{probe.getsockname()[1]}"
    key = "0" * 40  # the format of W&B's keys
    printed, error = attempt(
        config, [], [line(0)], "done", WANDB_BASE_URL=closed, WANDB_API_KEY=key, WANDB_INIT_TIMEOUT="3"
    )
    assert printed.startswith("trained on"), error
    assert "Weights & Biases: " in error
    assert "Training continues without it." in error
    assert key not in printed + error


def test_without_the_package_the_run_is_rejected_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = PathFinder.find_spec
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, *rest: None if name == "wandb" else find(name, *rest))
    with pytest.raises(
        ConfigError, match=r"tracking\.wandb\.project is set, .* wandb is not installed; .*slipway-launcher\[train\]"
    ):
        checks.check(run_config(tmp_path, project="demo"))
    checks.check(run_config(tmp_path))


def test_maxtexts_own_keys_are_rejected(tmp_path: Path) -> None:
    for key in ("enable_wandb", "wandb_project_name", "wandb_run_name", "prometheus_port", "gcs_metrics"):
        config = run_config(tmp_path)
        config.tree["train"][key] = 1
        with pytest.raises(ConfigError, match=f"train.{key} is set by Slipway"):
            checks.check(config)
