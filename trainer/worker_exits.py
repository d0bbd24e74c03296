"""How the processes of workers on this machine ended. Ray reports only that it lost the connection to one.

The kernel keeps the exit status of a process for those that hold a file descriptor of it (Linux 6.15 and later). No
parent can be asked: Ray's daemon, which starts the workers, discards their exit statuses.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
from pathlib import Path

# PIDFD_GET_INFO, PIDFD_INFO_EXIT and the offset of exit_code in struct pidfd_info: include/uapi/linux/pidfd.h
_SIZE, _EXIT_CODE = 64, 60
_GET_INFO = 3 << 30 | _SIZE << 16 | 0xFF << 8 | 11
_EXIT = 1 << 3

_watched: dict[int, int] = {}
_oom_kills: dict[int, int] = {}


def watch(rank: int, pid: int) -> None:
    """Hold a descriptor of the process of the worker `rank`, instead of that of an earlier process."""
    if (earlier := _watched.pop(rank, None)) is not None:
        os.close(earlier)
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            _watched[rank] = os.pidfd_open(pid)
    _oom_kills[rank] = count_oom_kills()


def ended() -> dict[int, int]:
    """Return the ranks whose processes are known to have ended, with the status of each as in os.waitpid."""
    return {rank: status for rank in _watched if (status := _wait_status(rank)) is not None}


def in_words(status: int | None) -> str:
    """Return how a process ended: "was killed by signal 9 (SIGKILL)"; None if its status is not known."""
    if status is None:
        return "was killed, ran out of memory, or crashed"
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    if ran_out_of_memory(status):
        return "was killed by signal 9 (SIGKILL) because the machine, or the container, has too little memory"
    with contextlib.suppress(ValueError):
        return f"was killed by signal {number} ({signal.Signals(number).name})"
    return f"was killed by signal {number}"


def ran_out_of_memory(status: int) -> bool:
    """Return whether the kernel has probably killed this process because memory was short.

    It has, if it killed any process of this machine for this reason since the workers started.
    """
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return killed and bool(_oom_kills) and count_oom_kills() > min(_oom_kills.values())


def count_oom_kills() -> int:
    """Return how many processes the kernel has killed because memory was short, since the machine started."""
    with contextlib.suppress(OSError, ValueError), Path("/proc/vmstat").open(encoding="ascii") as counters:
        for line in counters:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _wait_status(rank: int) -> int | None:
    """Return the status of a worker's process; None if it runs, or the kernel cannot report it."""
    info = bytearray(_SIZE)
    struct.pack_into("Q", info, 0, _EXIT)
    try:
        fcntl.ioctl(_watched[rank], _GET_INFO, info)
    except OSError:  # an older kernel
        return None
    mask: int = struct.unpack_from("Q", info, 0)[0]
    status: int = struct.unpack_from("i", info, _EXIT_CODE)[0]
    return status if mask & _EXIT else None
