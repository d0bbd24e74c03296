"""The compile, in a process of its own: python -m trainer.aot RUN_CONFIG OUT.

It takes minutes and gigabytes, and what goes wrong in it can abort a process; so it is watched from outside, and ended
with all that it started when time or memory run out, on Ctrl-C, and when this process dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher import formatting
from launcher.backends.local.runner import trainer_env
from launcher.errors import LauncherError
from launcher.forecast import machine, program
from launcher.forecast.program import Program
from launcher.forecast.request import Request

TIMEOUT_SECONDS = 30 * 60.0
_POLL_SECONDS = 0.25
_GIB = 1 << 30
_LAST_BYTES = 64 << 10

# Before it becomes the compile, the child asks to be killed when this process dies (prctl PR_SET_PDEATHSIG, Linux). Not
# as a preexec_fn: there is a thread that draws the progress line.
_DIES_WITH_US = (
    *(sys.executable, "-ISc"),
    "import ctypes, os, sys; getattr(ctypes.CDLL(None), 'prctl', print)(1, 9); os.execv(sys.argv[1], sys.argv[1:])",
)


class CompileFailed(LauncherError):
    """The compile came to no answer; `kind` is the child's word for why (trainer/aot/errors.py)."""

    def __init__(self, message: str, hint: str = "", *, kind: str = "internal") -> None:
        super().__init__(message, hint)
        self.kind = kind


class CompileTimeout(CompileFailed):
    """It took longer than it may."""


@dataclass(frozen=True)
class Limits:
    """How far a compile may go: `seconds`, `memory` (bytes of the child and all that it starts; None: what this machine
    has to spare), and whether it makes the chip's code, too (`finish`), which takes ten times as long."""

    seconds: float = TIMEOUT_SECONDS
    memory: int | None = None
    finish: bool = False


def command(config: Path, out: Path) -> list[str]:
    # -P: a folder named trainer where the user stands must not be taken for ours.
    return [sys.executable, "-P", "-m", "trainer.aot", str(config), str(out)]


def compile_(
    request: Request,
    log: Path,
    *,
    limits: Limits | None = None,
    phase: Callable[[str], None] = lambda _: None,
    argv: Callable[[Path, Path], Sequence[str]] = command,
) -> Program:
    """The request's program, compiled. `phase` gets what the child does now; `log` is where its output goes, and stays
    only where an error names it.

    Raises CompileFailed with a sentence, CompileTimeout after `limits.seconds`.
    """
    limits = limits or Limits()
    with tempfile.TemporaryDirectory(prefix="slipway-forecast-") as temporary:
        folder = Path(temporary)
        config, out = folder / "run.json", folder / "program.json"
        # Whatever MaxText writes, it writes into what is removed at the end.
        tree = {**request.config, "storage": {**request.config["storage"], "mountPath": str(folder)}}
        config.write_text(json.dumps(tree), encoding="utf-8")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*_DIES_WITH_US, *argv(config, out), *(["--finish"] if limits.finish else [])],
                cwd=folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stream,
                start_new_session=True,
            )
            try:
                told = _watch(process, stream.fileno(), limits, phase)
            except BaseException:
                log.unlink(missing_ok=True)
                raise
            finally:
                _end(process)
        if process.returncode == 0:
            try:
                found = program.read(json.loads(out.read_bytes()))
            except (OSError, ValueError) as error:  # DamagedProgram is a ValueError
                raise _internal(f"it wrote no program ({error})", log) from error
            log.unlink(missing_ok=True)
            return found
        raise _failed(process.returncode, told, log)


def _environment() -> dict[str, str]:
    """The child's; what the run sets for the compiler is in its config (worker.env)."""
    return {**os.environ, **trainer_env(), "PYTHONUNBUFFERED": "1"}


def _watch(process: subprocess.Popen[bytes], log: int, limits: Limits, phase: Callable[[str], None]) -> dict[str, Any]:
    """Follow the child to its end, and copy its stdout into the log; its last line of JSON that tells an error."""
    begin = time.monotonic()
    memory = limits.memory if limits.memory is not None else machine.memory_to_spare()
    told: dict[str, Any] = {}
    pending = b""
    assert process.stdout is not None  # noqa: S101 - for the type checker; it is a pipe
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(_POLL_SECONDS):
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    break
                os.write(log, chunk)
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    told = _parse_line(line, phase) or told
            if time.monotonic() - begin > limits.seconds:
                raise CompileTimeout(
                    f"The compile took longer than {formatting.duration(limits.seconds)} and was ended.",
                    "--timeout MINUTES gives it more.",
                )
            used = machine.memory_of(process.pid)
            if memory is not None and used > memory:
                raise CompileFailed(
                    f"The compile took {used / _GIB:.1f} GiB of memory, and this machine has {memory / _GIB:.1f} GiB "
                    "to spare; it was ended.",
                    "Run it on a machine with more memory, or end what takes memory here.",
                    kind="memory",
                )
    process.wait()
    return _parse_line(pending, phase) or told


def _parse_line(line: bytes, phase: Callable[[str], None]) -> dict[str, Any]:
    """The error that a line tells, if any; a phase is passed on."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    if isinstance(entry, dict) and isinstance(entry.get("phase"), str):
        phase(entry["phase"])
    return entry if isinstance(entry, dict) and "error" in entry else {}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the child's whole group; nothing where it has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _failed(code: int, told: dict[str, Any], log: Path) -> CompileFailed:
    """What a child that ended without a program says, or what its end says of it."""
    message = str(told.get("message") or "").strip()
    if not message and code == -signal.SIGKILL:
        return CompileFailed(
            "The compile was killed, most likely because this machine ran out of memory.",
            f"Its output is in {log}. Run it on a machine with more memory.",
        )
    if not message or told.get("error") == "internal":
        return _internal(message or _last_line(log) or _exit_reason(code), log)
    log.unlink(missing_ok=True)
    key = str(told.get("key") or "")
    path = f"train.{key}" if key and "." not in key else key
    message = f"{path}: {message}" if key and key not in message else message
    return CompileFailed(message, kind=str(told["error"]))


def _internal(why: str, log: Path) -> CompileFailed:
    return CompileFailed(f"The compile failed: {why.rstrip('.')}.", f"All that it said is in {log}.")


def _exit_reason(code: int) -> str:
    return f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"


def _last_of(log: Path) -> str:
    with contextlib.suppress(OSError), log.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - _LAST_BYTES))
        return stream.read().decode(errors="replace")
    return ""


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in _last_of(log).splitlines() if line.strip() and not line.startswith("{")]
    width = shutil.get_terminal_size((120, 24)).columns * 2
    return lines[-1][:width] if lines else ""
