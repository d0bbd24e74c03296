"""Which failures of a run are repeated, so that no restart follows. tests/trainer/test_training.py causes some."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from trainer import worker_exits
from trainer.config import RunConfig
from trainer.errors import DownloadError, StorageError
from trainer.failures import describe, give_up, is_repeated
from trainer.loop import TrainingStoppedError

OOM = RuntimeError("Checkpointing failed. RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes.")


class OfRay(Exception):
    """An error of Ray, for example for a worker that it lost."""


OfRay.__module__ = "ray.exceptions"


def of_jax(text: str) -> Exception:
    error: Exception = type("JaxRuntimeError", (RuntimeError,), {"__module__": "jax.errors"})(text)
    return error


def of_checkpoint(cause: Exception) -> Exception:
    """Return MaxText's error for an error while it writes a checkpoint."""
    error = RuntimeError(f"Checkpointing failed. {cause}")
    error.__cause__ = cause
    return error


@pytest.fixture
def run(tmp_path: Path) -> RunConfig:
    (tmp_path / "demo").mkdir()
    return config_of(tmp_path)


def config_of(root: Path, **train: object) -> RunConfig:
    return RunConfig(root / "run.json", {"run": {"name": "demo"}, "storage": {"mountPath": str(root)}, "train": train})


def after_steps(run: RunConfig, count: int) -> None:
    (run.folder / "metrics.jsonl").write_text("".join(f'{{"step": {step}, "loss": 1.0}}\n' for step in range(count)))


@pytest.mark.parametrize(
    ("error", "repeated"),
    [
        (ValueError("bad value at 0x7f01"), True),
        (ImportError("no module"), True),
        (of_jax("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12 bytes."), True),
        (of_jax("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm."), True),
        (of_jax("RESOURCE_EXHAUSTED: 429 Too Many Requests"), False),
        (of_jax("UNAVAILABLE: the connection to a host was lost"), False),
        (of_checkpoint(of_jax("UNKNOWN: Gloo AllGather failed: Connection reset by peer")), False),
        (of_checkpoint(of_jax("RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes.")), True),
        (OfRay("The worker died."), False),
        (FileNotFoundError(2, "No such file or directory", "/x"), True),
        (ConnectionResetError("reset"), False),
        (TimeoutError("late"), False),
        (StorageError("The storage does not respond."), False),
        (DownloadError("The model cannot be downloaded."), False),
        (TrainingStoppedError("Training stopped after 3 of 9 steps."), False),
    ],
)
def test_failures_of_the_program_are_repeated_and_those_of_machines_are_not(
    run: RunConfig, error: Exception, repeated: bool
) -> None:
    assert [is_repeated(run, {0: error}) for _ in range(2)] == [False, repeated]


def test_a_storage_that_fails_too_is_not_an_error(run: RunConfig) -> None:
    (run.folder / "last-failure.json").mkdir()
    assert not is_repeated(run, {0: ValueError("it failed")})


def test_another_message_step_or_config_is_another_failure(run: RunConfig, tmp_path: Path) -> None:
    assert not is_repeated(run, {0: ValueError("first")})
    assert not is_repeated(run, {0: ValueError("second")})
    after_steps(run, 3)
    assert not is_repeated(run, {0: ValueError("second")})
    assert not is_repeated(config_of(tmp_path, steps=9), {0: ValueError("second")})
    # A failure of a machine in between does not hide it, and numbers such as addresses may differ.
    assert not is_repeated(run, {0: ValueError("object at 0x7f01")})
    assert not is_repeated(run, {0: OfRay("lost"), 1: OSError("lost")})
    assert is_repeated(run, {0: OfRay("lost"), 1: ValueError("object at 0x6e02")})
    assert give_up(run, "It failed.") == (
        "It failed. It is the second failure of this kind after step 3, so the run does not restart."
    )


def test_a_damaged_record_of_the_last_failure_is_replaced(run: RunConfig) -> None:
    path = run.folder / "last-failure.json"
    path.write_text("{")
    assert not is_repeated(run, {0: OOM})
    assert json.loads(path.read_text())["step"] == 0
    assert is_repeated(run, {0: OOM})
    assert give_up(run, "It failed.").endswith("of this kind before its first step, so the run does not restart.")


@pytest.mark.parametrize(
    ("number", "kills", "repeated"),
    [(signal.SIGSEGV, 0, True), (signal.SIGKILL, 1, True), (signal.SIGKILL, 0, False), (signal.SIGABRT, 0, False)],
)
def test_a_worker_that_crashed_or_ran_out_of_memory(
    run: RunConfig, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, kills: int, repeated: bool
) -> None:
    """The statuses and the kernel's counter are invented: the kernel kills no process of a test on request."""
    statuses: Mapping[int, int] = {1: int(number)}
    monkeypatch.setattr(worker_exits, "ended", lambda: dict(statuses))
    monkeypatch.setattr(worker_exits, "_oom_kills", {0: 7, 1: 7})
    monkeypatch.setattr(worker_exits, "count_oom_kills", lambda: 7 + kills)
    failures: dict[int, BaseException] = {0: RuntimeError("Checkpointing failed. UNKNOWN: reset"), 1: OfRay("lost")}
    assert [is_repeated(run, failures) for _ in range(2)] == [False, repeated]
    words = worker_exits.in_words(int(number))
    assert words.startswith(f"was killed by signal {int(number)} ({number.name})")
    assert ("too little memory" in words) == bool(kills)


def test_a_lack_of_memory_names_what_to_lower() -> None:
    assert describe(OOM) == (
        "The run is out of memory (RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes); lower "
        "train.per_device_batch_size or train.max_target_length, or use more chips."
    )
