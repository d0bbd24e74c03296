"""The compile, in a child process: python -m trainer.aot RUN_CONFIG OUT.

A compile takes minutes and gigabytes, and a failure in it can abort the process. So this module watches it from
outside. It ends the child and all its descendants on a time or memory limit, on Ctrl-C, and when this process dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher import formatting
from launcher.errors import LauncherError
from launcher.products.common import child, machine
from launcher.products.planner.forecast import program
from launcher.products.planner.forecast.program import Program
from launcher.products.planner.forecast.request import Request

TIMEOUT_SECONDS = 30 * 60.0
_POLL_SECONDS = 0.25
_GIB = 1 << 30
_LAST_BYTES = 64 << 10


class CompileFailed(LauncherError):
    """The compile gave no result. `kind` is the child's name for the reason (trainer/aot/errors.py)."""

    def __init__(self, message: str, hint: str = "", *, kind: str = "internal") -> None:
        super().__init__(message, hint)
        self.kind = kind


class CompileTimeout(CompileFailed):
    """The compile exceeded its time limit."""


@dataclass(frozen=True)
class Limits:
    """The limits of a compile.

    `seconds` is the time limit. `memory` is the limit in bytes for the child and its descendants, or None for the
    memory that this machine has to spare. `finish` also generates the chip's code, which takes ten times as long.
    """

    seconds: float = TIMEOUT_SECONDS
    memory: int | None = None
    finish: bool = False


def command(config: Path, out: Path) -> list[str]:
    return child.module("trainer.aot", str(config), str(out))


def compile_(
    request: Request,
    log: Path,
    *,
    limits: Limits | None = None,
    phase: Callable[[str], None] = lambda _: None,
    argv: Callable[[Path, Path], Sequence[str]] = command,
) -> Program:
    """Compile the request and return its program.

    `phase` is called with the child's current phase. The child's output goes to `log`, which is kept only if an error
    names it. Raises CompileFailed if the compile fails, and CompileTimeout after `limits.seconds`.
    """
    limits = limits or Limits()
    with tempfile.TemporaryDirectory(prefix="slipway-forecast-") as temporary:
        folder = Path(temporary)
        config, out = folder / "run.json", folder / "program.json"
        # MaxText writes only into this folder, which is removed at the end.
        tree = {**request.config, "storage": {**request.config["storage"], "mountPath": str(folder)}}
        config.write_text(json.dumps(tree), encoding="utf-8")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as stream:
            # The run's variables for the compiler are in its config (worker.env).
            words = [*argv(config, out), *(["--finish"] if limits.finish else [])]
            try:
                with child.running(words, cwd=folder, stderr=stream) as process:
                    reported = _watch(process, stream.fileno(), limits, phase)
            except BaseException:
                log.unlink(missing_ok=True)
                raise
        if process.returncode == 0:
            try:
                compiled = program.read(json.loads(out.read_bytes()))
            except (OSError, ValueError) as error:  # DamagedProgram is a ValueError
                raise _internal(f"it wrote no program ({error})", log) from error
            log.unlink(missing_ok=True)
            return compiled
        raise _failed(process.returncode, reported, log)


def _watch(process: subprocess.Popen[bytes], log: int, limits: Limits, phase: Callable[[str], None]) -> dict[str, Any]:
    """Follow the child until it ends and copy its stdout into the log. Return its last JSON line with an error."""
    begin = time.monotonic()
    memory = limits.memory if limits.memory is not None else machine.memory_to_spare()
    reported: dict[str, Any] = {}
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.pipe(process.stdout), selectors.EVENT_READ)
        while True:
            if selector.select(_POLL_SECONDS):
                chunk = os.read(child.pipe(process.stdout).fileno(), 1 << 16)
                if not chunk:
                    break
                os.write(log, chunk)
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    reported = _parse_line(line, phase) or reported
            if time.monotonic() - begin > limits.seconds:
                raise CompileTimeout(
                    f"The compile took longer than {formatting.duration(limits.seconds)} and was stopped.",
                    "--timeout MINUTES allows more time.",
                )
            used = machine.memory_of(process.pid)
            if memory is not None and used > memory:
                raise CompileFailed(
                    f"The compile used {used / _GIB:.1f} GiB of memory, but this machine has only {memory / _GIB:.1f} "
                    "GiB available; it was stopped.",
                    "Run it on a machine with more memory, or stop other programs on this machine.",
                    kind="memory",
                )
    process.wait()
    return _parse_line(pending, phase) or reported


def _parse_line(line: bytes, phase: Callable[[str], None]) -> dict[str, Any]:
    """Return the error in a line, if any. Pass a phase on to `phase`."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    if isinstance(entry, dict) and isinstance(entry.get("phase"), str):
        phase(entry["phase"])
    return entry if isinstance(entry, dict) and "error" in entry else {}


def _failed(code: int, reported: dict[str, Any], log: Path) -> CompileFailed:
    """Return the error of a child that ended without a program: the one it reported, or one for its exit status."""
    message = str(reported.get("message") or "").strip()
    if not message and code == -signal.SIGKILL:
        return CompileFailed(
            "The compile was killed, most likely because this machine ran out of memory.",
            f"Its output is in {log}. Run it on a machine with more memory.",
        )
    if not message or reported.get("error") == "internal":
        return _internal(message or _last_line(log) or _exit_reason(code), log)
    log.unlink(missing_ok=True)
    key = str(reported.get("key") or "")
    path = f"train.{key}" if key and "." not in key else key
    message = f"{path}: {message}" if key and key not in message else message
    return CompileFailed(message, kind=str(reported["error"]))


def _internal(why: str, log: Path) -> CompileFailed:
    return CompileFailed(f"The compile failed: {why.rstrip('.')}.", f"Its output is in {log}.")


def _exit_reason(code: int) -> str:
    return f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"


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
