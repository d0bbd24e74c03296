"""The memory that this machine has to spare, and the memory of a process with its descendants. Linux only."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from launcher.backends.local.processes import descendants

# Reserved for other work on the machine.
_RESERVE = 256 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_to_spare() -> int | None:
    """Return the bytes that a new process may use: the kernel's available memory, at most the container's limit.

    None if the system does not report it.
    """
    limits = []
    with contextlib.suppress(OSError):
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        available = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
        if available:
            limits.append(int(available[1]) << 10)
    limits += _of_the_container()
    return max(0, min(limits) - _RESERVE) if limits else None


def _of_the_container() -> list[int]:
    """Return the memory left in this process's control group (version 2, else 1), if it has a limit."""
    for limit, usage, inactive in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        with contextlib.suppress(OSError, ValueError):
            root = Path("/sys/fs/cgroup")
            most = int((root / limit).read_text())
            if most >= 1 << 60:  # in version 1 this means no limit
                continue
            used = int((root / usage).read_text())
            # The kernel counts reclaimable file pages as used.
            back = re.search(r"^(?:total_)?inactive_file (\d+)", (root / inactive).read_text(), re.MULTILINE)
            return [max(0, most - used + (int(back[1]) if back else 0))]
    return []


def memory_of(process: int) -> int:
    """Return the bytes of memory of the process and its descendants, or 0 if the system does not report it."""
    total = 0
    for pid in (process, *descendants(process)):
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    return total
