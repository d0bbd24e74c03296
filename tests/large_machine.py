"""A machine of a given size, so that rules on disk and memory give the same result on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.config.checks import this_machine


def use_machine(
    patch: pytest.MonkeyPatch, *, free: int | None = 1 << 50, memory: int | None = 1 << 50, cores: int = 1 << 20
) -> None:
    """Make the rules see a machine with so many bytes of free disk and of memory (None: unknown), and CPU cores."""
    patch.setattr(this_machine, "runs_folder", lambda: Path("~/.slipway/runs"))
    patch.setattr(this_machine, "disk", lambda folder: None if free is None else (1 << 60, free))
    patch.setattr(this_machine, "memory", lambda: memory)
    patch.setattr(this_machine, "cores", lambda: cores)
