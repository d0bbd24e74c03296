"""Run a module of the trainer on this machine, and read the lines that it prints."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import IO

from launcher import distribution
from launcher.backends.local.supervisor import trainer_env
from launcher.errors import LauncherError

_PACKAGES = {
    "generate": ("mlx_lm", "mlx-lm, which runs a model on this machine,"),
    "eval": ("lm_eval", "lm-eval, which has the tasks,"),
}
"""The extras of the launcher that a module needs, each with one of its packages and what that is for."""
_LAST_BYTES = 64 << 10
# Before the module starts, the child asks the kernel to kill it when this process dies (prctl PR_SET_PDEATHSIG, Linux).
_DIES_WITH_US = (
    *(sys.executable, "-ISc"),
    "import ctypes, os, sys; getattr(ctypes.CDLL(None), 'prctl', print)(1, 9); os.execv(sys.argv[1], sys.argv[1:])",
)


def require(extra: str) -> None:
    """Raise LauncherError if the packages of the extra "generate" or "eval" are not installed."""
    for name in ("generate",) if extra == "generate" else ("generate", "eval"):
        module, what = _PACKAGES[name]
        if importlib.util.find_spec(module) is None:
            raise LauncherError(
                f"{what} is not installed in this Python ({sys.executable}).",
                f"Install it next to the launcher: {distribution.install(extra)}",
            )


def run(module: str, arguments: Sequence[str]) -> None:
    """Run the module to its end. Raises LauncherError with the sentence that it prints if it fails."""
    for _ in lines(module, arguments):
        pass


def lines(module: str, arguments: Sequence[str], stdin: str = "") -> Iterator[str]:
    """Yield the lines that the module prints on stdout, as soon as they are printed.

    Raises LauncherError with the sentence that the module prints on stderr if it fails. If the caller stops reading,
    the module ends.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            # -P: a folder named trainer in the current folder must not shadow ours.
            [*_DIES_WITH_US, sys.executable, "-P", "-m", module, *arguments],
            env={**os.environ, **trainer_env(), "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - for the type checker
        writer = threading.Thread(target=_feed, args=(process.stdin, stdin.encode(errors="replace")), daemon=True)
        writer.start()
        try:
            for line in process.stdout:
                yield line.decode(errors="replace").rstrip("\n")
            process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
            writer.join()
        if process.returncode:
            raise _failed(module, process.returncode, log)


def _feed(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # the module has ended, and its exit code reports why
        stream.write(data)
    with contextlib.suppress(BrokenPipeError):
        stream.close()


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
