"""Runs the programs that build a release."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.release.versions import ReleaseError


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it prints. Raises ReleaseError with that output if it fails."""
    done = subprocess.run(
        command,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"{Path(command[0]).name} failed ({' '.join(command[1:3])} …):\n{done.stdout.strip()}")
    return done.stdout
