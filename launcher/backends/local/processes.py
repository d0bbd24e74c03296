"""Processes of this machine: those that belong to a run, found and ended. Only the standard library."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

# Every process of a run carries this in its environment, so that it is found when its parents are dead.
MARK = "SLIPWAY_RUN_ID"
# What has been sent SIGKILL and still lives after this hangs in the kernel; nothing more can be done then.
_KILL_SECONDS = 10.0


def descendants(root: int) -> list[int]:
    """Every living process that `root` started, directly or not (Linux; elsewhere none is known)."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc") if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # "pid (name) state ppid …"; the name may hold anything, brackets too.
                stat = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def marked(run_id: str) -> list[int]:
    """Every living process that belongs to the run, whoever its parent is now (Linux; elsewhere none is known)."""
    mark = f"{MARK}={run_id}".encode()
    found: list[int] = []
    for entry in os.scandir("/proc") if Path("/proc").is_dir() else ():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def kill_all(find: Callable[[], Iterable[int]], reap: Callable[[], object] = lambda: None) -> bool:
    """SIGKILL what `find` finds until it finds nothing; False where something outlives even that."""
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
