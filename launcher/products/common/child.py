"""A process of a module that runs for a command: it ends with the command, and never outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from launcher.backends.local.environment import own_environment, trainer_env

# Before the child starts its work, it asks the kernel to kill it when this process dies (prctl PR_SET_PDEATHSIG,
# Linux). A preexec_fn is not safe here, because a thread may draw a progress line.
_DIES_WITH_US = (
    *(sys.executable, "-ISc"),
    "import ctypes, os, sys; getattr(ctypes.CDLL(None), 'prctl', print)(1, 9); os.execv(sys.argv[1], sys.argv[1:])",
)


def module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of the trainer or the launcher with this Python."""
    # -P: a folder of that name in the current folder must not shadow ours.
    return [sys.executable, "-P", "-m", name, *arguments]


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """Return a stream of a process that was started with a pipe for it. Raises ValueError if it has none."""
    if stream is None:
        raise ValueError("the process has no pipe for this stream")
    return stream


@contextlib.contextmanager
def running(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    grace: float = 0.0,
    env: Mapping[str, str] = {},
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child, and end it with all its descendants at the end of the context.

    With `grace`, it first gets SIGINT and that many seconds, so that it can remove what it has not finished. `env` are
    more variables of its environment.
    """
    process = subprocess.Popen(
        [*_DIES_WITH_US, *argv],
        cwd=cwd,
        env=own_environment(os.environ, env) | trainer_env(os.environ) | {"PYTHONUNBUFFERED": "1"},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if grace and process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
