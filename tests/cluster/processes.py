"""Processes that always end with the tests, even if the tests are killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

# Ends its process group when its standard input is closed: by `Processes.stop`, or because the tests were killed.
# There is no other portable way to notice a SIGKILL of the parent.
WATCH = """
import os, shutil, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdin.buffer.read()
os.killpg(0, signal.SIGCONT)
os.killpg(0, signal.SIGTERM)
time.sleep(1)
shutil.rmtree(sys.argv[1], ignore_errors=True)
os.killpg(0, signal.SIGKILL)
"""


class Processes:
    """Named processes of one group, with a folder for all that they write. `stop` ends them and removes the folder."""

    def __init__(self, prefix: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._watch = subprocess.Popen(
            [sys.executable, "-c", WATCH, str(self.folder)], stdin=subprocess.PIPE, process_group=0
        )

    def start(self, name: str, command: list[str | Path]) -> None:
        """Start `command`. Its output goes to the log of `name`."""
        with self.log(name).open("ab") as log:
            # A separate group: only the tests receive Ctrl-C, and then stop these processes.
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # The garbage collector took a fifth of the API server's time.
                env={**os.environ, "GOGC": "300"},
                process_group=self._watch.pid,
            )

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def ended(self) -> list[str]:
        """The names of the processes that have ended without `stop` or `kill`."""
        return [name for name, process in self._running.items() if process.poll() is not None]

    def kill(self, name: str) -> None:
        """Kill one process, as when its machine fails."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)

    def last_lines(self, count: int = 15) -> str:
        """The last lines of all logs, for an error message."""
        parts = []
        for file in sorted(self.folder.glob("*.log")):
            lines = file.read_text(errors="replace").splitlines()[-count:]
            parts.append(f"--- {file.name}\n" + "\n".join(line[:400] for line in lines))
        return "\n".join(parts)

    def stop(self) -> None:
        """End all processes and remove the folder. A second call does nothing."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._watch.stdin is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._watch.pid, signal.SIGKILL)
            self._watch.stdin.close()
            self._watch.wait()
