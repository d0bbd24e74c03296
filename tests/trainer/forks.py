"""Starts programs of the trainer in forks of one process that has imported JAX and MaxText.

The imports take half of the time of a short training. trainer/prepared.py restarts trainings in the same way. Each
program has its own environment, arguments and output, and a Unix socket on which this process reports how it ended.

    python -m tests.trainer.forks       the process that forks: the first line of its output is its socket's path
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


class Fork(subprocess.Popen[bytes]):
    """A program in a fork. Another process is its parent, so its exit code comes through the socket."""

    def __init__(self, connection: socket.socket, pid: int, arguments: Sequence[str]) -> None:
        self._child_created = False  # for Popen's __del__
        self.stdin = self.stdout = self.stderr = None
        self.pid, self.args, self.returncode = pid, list(arguments), None
        self._connection = connection

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._connection.makefile().readline())
            self._connection.close()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


class Forks:
    """The process that forks. It starts with the first program, and ends with this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._path = ""

    def start(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Fork:
        """Run `python -m module` in the checkout. Its output is added to `log`."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
            )
            assert self._process.stdout is not None
            self._path = self._process.stdout.readline().strip()
            atexit.register(self.close)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._path)
        request = {"argv": [module, *arguments], "environment": dict(environment), "log": str(log)}
        connection.sendall(json.dumps(request).encode() + b"\n")
        return Fork(connection, int(connection.recv(20)), [module, *arguments])

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None


def serve() -> list[str]:
    """Fork for each request, until stdin is closed. Returns in the forked process, with its program's arguments."""
    from trainer import deferred_imports, loop
    from trainer.config import RunConfig

    # JAX reads these at import.
    loop.set_environment(RunConfig(CHECKOUT / "run.json", {"accelerator": {"kind": "cpu"}}))
    deferred_imports.import_training()
    folder = Path(tempfile.mkdtemp(prefix="slipway-"))
    path = folder / "socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    sys.stdout.write(f"{path}\n")
    sys.stdout.flush()
    ends: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready: set[object] = set(select.select([sys.stdin, listener, *ends], [], [])[0])
        for pidfd in [pidfd for pidfd in ends if pidfd in ready]:
            pid, connection = ends.pop(pidfd)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(pidfd)
            with connection, contextlib.suppress(OSError):
                connection.sendall(f"{code}\n".encode())
        if listener in ready:
            connection = listener.accept()[0]
            request = json.loads(connection.makefile().readline())
            pid = os.fork()
            if not pid:
                listener.close()
                connection.close()
                for pidfd, (_, other) in ends.items():
                    os.close(pidfd)
                    other.close()
                return _become(**request)
            connection.sendall(f"{pid:<20}".encode())
            ends[os.pidfd_open(pid)] = pid, connection
        if sys.stdin in ready:
            path.unlink()
            folder.rmdir()
            return []


def _become(argv: list[str], environment: dict[str, str], log: str) -> list[str]:
    """Take the environment and the output of a program, and return its arguments."""
    output, nothing = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(output)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    random.seed()
    return argv


if __name__ == "__main__":
    program = serve()
    if program:
        sys.argv[1:] = program[1:]
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
