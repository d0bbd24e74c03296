"""How much memory this machine has to spare, and what a process with all that it has started takes. Linux."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from launcher.backends.local.processes import descendants

# For whatever else the machine does meanwhile.
_RESERVE = 256 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_to_spare() -> int | None:
    """Bytes that a new process may take: what the kernel calls available, and no more than the container may have.

    None where the system does not say.
    """
    found = []
    with contextlib.suppress(OSError):
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        available = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
        if available:
            found.append(int(available[1]) << 10)
    found += _of_the_container()
    return max(0, min(found) - _RESERVE) if found else None


def _of_the_container() -> list[int]:
    """What the control group of this process leaves (version 2, else 1), where it has a limit."""
    for limit, usage, inactive in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        with contextlib.suppress(OSError, ValueError):
            root = Path("/sys/fs/cgroup")
            most = int((root / limit).read_text())
            if most >= 1 << 60:  # version 1's way to say that there is none
                continue
            used = int((root / usage).read_text())
            # Pages of files that can be had back count as used.
            back = re.search(r"^(?:total_)?inactive_file (\d+)", (root / inactive).read_text(), re.MULTILINE)
            return [max(0, most - used + (int(back[1]) if back else 0))]
    return []


def memory_of(process: int) -> int:
    """Bytes of memory that the process and all that it has started take; 0 where the system does not say."""
    total = 0
    for pid in (process, *descendants(process)):
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    return total
