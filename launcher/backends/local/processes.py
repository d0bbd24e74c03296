"""Find and end the processes of a run on this machine. Uses only the standard library."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

# Every process of a run has this variable in its environment, so that it is found after its parents have exited.
MARK = "SLIPWAY_RUN_ID"
# A process that is still alive this long after SIGKILL hangs in the kernel and cannot be ended.
_KILL_SECONDS = 10.0


def descendants(root: int) -> list[int]:
    """Return every live process that `root` started, directly or indirectly (Linux; [] on other systems)."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc") if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # "pid (name) state ppid …"; the name may contain any character, including brackets.
                stat = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    pids: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        pids += below
        queue += below
    return pids


def marked(run_id: str) -> list[int]:
    """Return every live process of the run, with any parent (Linux; [] on other systems)."""
    mark = f"{MARK}={run_id}".encode()
    pids: list[int] = []
    for entry in os.scandir("/proc") if Path("/proc").is_dir() else ():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # ended in the meantime, or owned by another user
                if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
    return pids


def kill_all(find: Callable[[], Iterable[int]], reap: Callable[[], object] = lambda: None) -> bool:
    """Send SIGKILL to the processes that `find` returns until there are none. Return False if some stay alive."""
    deadline = time.monotonic() + _KILL_SECONDS
    while True:
        pids = list(find())
        if not pids:
            return True
        if time.monotonic() > deadline:
            return False
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(0.01)


def oom_kills() -> int:
    """Return how many processes the kernel of this machine has killed because memory was short (Linux; or else 0).

    trainer/worker_exits.py has the same for Ray's workers: launcher and trainer do not import each other.
    """
    with contextlib.suppress(OSError, ValueError), Path("/proc/vmstat").open(encoding="ascii") as counters:
        for line in counters:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
