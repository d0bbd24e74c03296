"""Run a module of the trainer on this machine, and read the lines that it prints."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Sequence
from typing import IO

from launcher import distribution
from launcher.errors import LauncherError
from launcher.products.common import child

GENERATE, EVAL = "generate", "eval"
"""The extras of the launcher that a module needs."""
_PACKAGES = {GENERATE: ("mlx_lm",), EVAL: ("mlx_lm", "lm_eval")}
_USES = {"mlx_lm": "mlx-lm, which runs a model on this machine,", "lm_eval": "lm-eval, which has the tasks,"}
_LAST_BYTES = 64 << 10


def require(extra: str) -> None:
    """Raise LauncherError if the packages of the extra are not installed."""
    for package in _PACKAGES[extra]:
        if importlib.util.find_spec(package) is None:
            raise LauncherError(
                f"{_USES[package]} is not installed in this Python ({sys.executable}).",
                f"Install it next to the launcher: {distribution.install(extra)}",
            )


def run(module: str, arguments: Sequence[str]) -> None:
    """Run the module to its end. Raises LauncherError with the sentence that it prints if it fails."""
    for _ in lines(module, arguments):
        pass


def lines(module: str, arguments: Sequence[str], stdin: str = "") -> Generator[str]:
    """Yield the lines that the module prints on stdout, as soon as they are printed.

    Raises LauncherError with the sentence that the module prints on stderr if it fails. If the caller stops reading,
    the module ends.
    """
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as given:
        given.write(stdin.encode(errors="replace"))
        given.seek(0)
        with child.running(child.module(module, *arguments), stdin=given, stderr=log) as process:
            for line in child.pipe(process.stdout):
                yield line.decode(errors="replace").rstrip("\n")
            code = process.wait()
        if code:
            raise _failed(module, code, log)


def _failed(module: str, code: int, log: IO[bytes]) -> Exception:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _LAST_BYTES))
    text = log.read().decode(errors="replace")
    printed = [line.removeprefix("Error: ") for line in text.splitlines() if line.startswith("Error: ")]
    if printed:
        return LauncherError(printed[-1])
    if code == -signal.SIGKILL:
        return LauncherError(
            f"python -m {module} was killed, most likely because this machine ran out of memory.",
            "Use a machine with more memory, or stop other programs on this one.",
        )
    return RuntimeError(f"python -m {module} ended with exit code {code}:\n{text}")
