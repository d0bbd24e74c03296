"""Real training runs for the tests: a tiny model and real text, in separate processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.coverage_by_package import MEASURED, unmeasured
from tests.tiny_model import TINY_MODEL
from tests.trainer.forks import Forks
from trainer.spares import SWITCH as SPARES

CHECKOUT = Path(__file__).parents[2]
WEIGHED = "tests.trainer.weighed"

# How long a test waits for a run, in seconds. A busy machine needs a minute for the imports alone.
PATIENCE = 600.0

# 17 steps in four checkpoint periods: tests kill a run between checkpoints, during one, and after the last one.
STEPS = 17
TRAIN: dict[str, Any] = {
    **TINY_MODEL,
    "vocab_size": 512,
    "learning_rate": 2e-2,
    "steps": STEPS,
    "checkpoint_period": 4,
    "eval_interval": 5,
    "eval_steps": 2,
}
# Evaluations only before the first step and after the last. The learning rate schedule is fixed, so a run with fewer
# steps has the same numbers as the first steps of this one.
ONE_HOST: dict[str, Any] = {"steps": 60, "learning_rate_schedule_steps": 60, "eval_interval": None}


@dataclass(frozen=True)
class TrainingHarness:
    """The folder of the test runs, and a tokenizer with few pieces, which keeps the model small."""

    root: Path
    tokenizer: Path

    def config(self, name: str, *, hosts: int = 2, data: dict[str, Any] | None = None, **train: Any) -> Path:
        """Write a run config. `train` overrides MaxText keys; None removes a key."""
        tree = {
            "run": {"name": name, "kind": "local", "maxRestarts": 2, "command": []},
            "slice": {"accelerator": "cpu", "count": 1, "hosts": hosts},
            "accelerator": {"name": "cpu", "kind": "cpu", "hosts": hosts, "chips": hosts, "chipsPerHost": 1},
            "storage": {"kind": "local", "mountPath": str(self.root)},
            "data": data
            if data is not None
            else {
                "corpus": "python",
                "heldOut": {"fraction": 0.02},
                "tokenizer": {"kind": "sentencepiece", "path": str(self.tokenizer)},
            },
            "train": {key: value for key, value in {**TRAIN, **train}.items() if value is not None},
        }
        path = self.root / f"{name}.json"
        path.write_text(json.dumps(tree))
        return path

    def start(self, config: Path, *options: str, module: str = "trainer", **environment: str) -> Run:
        """Start a run. Under Ray without spare processes, which import JAX for seconds in each training.

        `module` has the trainer's program. Without Ray, it runs in a fork of a process that has done the imports, and
        ends as if it had done them itself.
        """
        name = config.stem
        log = self.root / f"{name}{''.join(options)}.log"
        arguments = ("--config", str(config), *options)
        process: subprocess.Popen[bytes]
        if "--no-ray" in options and MEASURED not in os.environ:
            process = _forks.start(module, arguments, {**os.environ, **environment}, log)
        else:
            ray = "--no-ray" not in options
            # The child has its own handle of the log.
            with log.open("ab") as output:
                process = subprocess.Popen(
                    [*trainer(module, ray=ray), *arguments],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=CHECKOUT,
                    env={**(unmeasured(os.environ) | {SPARES: "0"} if ray else os.environ), **environment},
                )
        _started.append(process)
        return Run(self.root / name, process, log)

    def train(self, config: Path, *options: str, module: str = "trainer", **environment: str) -> Run:
        """Run to the end."""
        run = self.start(config, *options, module=module, **environment)
        run.wait()
        return run


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def trainer(module: str = "trainer", *, ray: bool) -> list[str]:
    """Return the trainer's command. If coverage is measured, it covers this process, but no process that Ray starts."""
    if ray and MEASURED in os.environ:
        rules = f"--rcfile={CHECKOUT / 'tests' / 'driver.coveragerc'}"
        return [sys.executable, "-m", "coverage", "run", rules, "-m", module]
    return [sys.executable, "-m", module]


def with_run(config: Path, **run: Any) -> Path:
    """Change keys of `run` in a run config."""
    tree = json.loads(config.read_text())
    tree["run"].update(run)
    config.write_text(json.dumps(tree))
    return config


def with_metrics(config: Path) -> Path:
    """Make the run of a run config serve its metrics."""
    tree = json.loads(config.read_text())
    tree["tracking"] = {"metricsPort": 9464}
    config.write_text(json.dumps(tree))
    return config


@dataclass(frozen=True)
class Run:
    folder: Path
    process: subprocess.Popen[bytes]
    log: Path

    def copies(self) -> float:
        """Return how many copies of its state a run of tests.trainer.weighed had in memory at its last start."""
        most, state = re.findall(r"^weighed: ([0-9]+) ([0-9]+)$", self.output(), re.MULTILINE)[-1]
        return int(most) / int(state)

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(timeout=seconds)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def metrics(self) -> list[dict[str, Any]]:
        return lines(self.folder / "metrics.jsonl")

    def events(self, kind: str = "loop_started") -> list[dict[str, Any]]:
        return [event for event in lines(self.folder / "events.jsonl") if event["event"] == kind]

    def step(self) -> int:
        """Return the last finished step, or -1 before the first."""
        return max((line["step"] for line in self.metrics() if "loss" in line), default=-1)

    def descendants(self, pattern: str) -> list[psutil.Process]:
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if pattern in " ".join(process.cmdline()):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return sorted(found, key=lambda process: process.pid)

    def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"the run ended first:\n{self.output()[-3000:]}"
            assert time.monotonic() < deadline, f"not within {seconds} s:\n{self.output()[-3000:]}"
            time.sleep(0.02)


_forks = Forks()
_started: list[subprocess.Popen[bytes]] = []


def keep(run: Run) -> None:
    """Leave a run to the fixture that started it. Other runs end with their test."""
    _started.remove(run.process)


def end_all() -> None:
    """End the runs that still run. A failed test leaves its run, which would slow down and fail the next tests."""
    for process in _started:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.kill()
            process.wait()
    _started.clear()


def lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def numbers(metrics: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the numbers that must be equal bit for bit between two runs. JSON keeps every bit of a double."""
    keys = ("step", "loss", "eval_loss", "grad_norm", "param_norm", "learning_rate")
    return [tuple(line.get(key) for key in keys) for line in metrics]


def steps(run: Run) -> list[tuple[Any, ...]]:
    """Return the numbers of a run's steps, without those of its evaluations."""
    return numbers([line for line in run.metrics() if "loss" in line])
