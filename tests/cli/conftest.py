"""The real command with a home folder for each test. Its runs are small programs instead of trainings.

launcher("status", "demo")                  runs in this process, which saves the start of Python
launcher(..., before=drop_file_privileges)  runs in a new process, as does every call with options of a process
launcher.start("submit", ...)               starts a new process, for signals
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from launcher.__main__ import run
from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.processes import marked
from launcher.backends.local.record import Record, read_record
from tests.coverage_by_package import unmeasured

ROOT = Path(__file__).resolve().parents[2]

# A run that ends at once, and one that runs until it is stopped.
SHORT = """\
run: {name: demo, kind: local, maxRestarts: 0, command: [sh, -c, 'echo hello']}
slice: {accelerator: cpu}
storage: {kind: local}
"""
LONG = SHORT.replace("echo hello", "echo hello; exec sleep 600")

# Replaces a training, which takes minutes. It writes the same files as the trainer.
TRAINING = """
import json, os, sys, time
folder, steps, pause = os.environ["SLIPWAY_RUN_FOLDER"], int(sys.argv[1]), float(sys.argv[2])
def write(file, **entry):
    with open(f"{folder}/{file}.jsonl", "a") as stream:
        stream.write(json.dumps(entry) + "\\n")
write("events", event="loop_started", step=0, steps=steps, devices=2)
write("metrics", step=0, eval_loss=10.8)
for step in range(steps):
    time.sleep(pause)
    write("metrics", step=step, loss=10 - step / 10, step_seconds=pause, tokens_per_second_per_device=1000)
    print("step", step)
write("metrics", step=steps, eval_loss=7.1)
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Launcher:
    """`launcher …` as a user types it in `folder`."""

    home: Path
    folder: Path
    measured: bool = True  # whether coverage measures its processes, if coverage is on

    def __call__(
        self, *arguments: str, seconds: float = 60, env: Mapping[str, str] | None = None, **options: Any
    ) -> Result:
        """Run the command to its end. `options` start it in a new process, which may run for `seconds`."""
        if options or "PYTHONPATH" in (env or {}):
            return self._run_in_new_process(*arguments, seconds=seconds, env=env, **options)
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, {**self.env, **(env or {})}, clear=True),
            mock.patch.object(sys, "stdin", io.StringIO()),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run(arguments)
        return Result(int(code), out.getvalue(), err.getvalue())

    def _run_in_new_process(self, *arguments: str, seconds: float, **options: Any) -> Result:
        process = self.start(*arguments, **options)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()  # otherwise it would disturb later tests
            process.communicate()
            raise
        return Result(process.returncode, out, err)

    def start(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
        prefix: tuple[str, ...] = (),
        **options: Any,
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*prefix, sys.executable, "-m", "launcher", *arguments],
            env={**self.env, **(env or {})},
            cwd=self.folder,
            text=True,
            preexec_fn=before,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    @property
    def env(self) -> dict[str, str]:
        return {
            **(os.environ if self.measured else unmeasured(os.environ)),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "SLIPWAY_HOME": str(self.home),
            "SLIPWAY_GRACE_SECONDS": "5",
            "COLUMNS": "80",
        }

    @property
    def runs(self) -> list[str]:
        """The names of all folders of runs, hidden ones included."""
        runs = self.home / "runs"
        return sorted(path.name for path in runs.iterdir()) if runs.is_dir() else []

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def record(self, name: str = "demo") -> Record:
        return read_record(self.home / "runs" / name)

    def processes(self, name: str = "demo") -> list[int]:
        """Return the process IDs of a run that are alive, without its supervisor."""
        return marked(self.record(name).id)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    (tmp_path / "here").mkdir()
    command = Launcher(tmp_path / "home", tmp_path / "here")
    yield command
    end_all(command)


def end_all(command: Launcher) -> None:
    """Cancel all runs that a test has left running."""
    backend = LocalBackend(command.home)
    for status in backend.list(lambda _: None) if command.home.is_dir() else ():
        if not status.state.ended:
            backend.cancel(status.name)


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def drop_file_privileges() -> None:
    """Make a child process respect file permissions even as root: in many containers, the tests run as root."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP: takes effect at exec
