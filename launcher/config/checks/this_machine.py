"""The disk, the memory and the GPUs of this machine, on which a local run trains."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from pathlib import Path

from launcher.paths import home


def runs_folder() -> Path:
    """Return the folder in which launcher.backends.local keeps its runs."""
    return home() / "runs"


def disk(folder: Path) -> tuple[int, int] | None:
    """Return the size and the free bytes of the disk of `folder`, which need not exist yet; None if unknown."""
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        usage = shutil.disk_usage(there)
    except (OSError, StopIteration):
        return None
    return usage.total, usage.free


def memory() -> int | None:
    """Return the bytes of memory of this machine, at most the container's limit; None if the system has no answer."""
    limits = []
    with contextlib.suppress(OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):  # control groups, version 2 and 1
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path("/sys/fs/cgroup", limit).read_text(encoding="ascii")))
    return min(limits) if limits else None


def cores() -> int:
    """Return the number of CPU cores that this process can use."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def gpus() -> int:
    """Return the number of NVIDIA GPUs that this process can use."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def jax_supports_gpus() -> bool:
    """Return whether JAX's plugin for NVIDIA GPUs is installed."""
    return any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
