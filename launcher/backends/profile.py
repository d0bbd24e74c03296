"""Request a profile of a training that runs. trainer/profiling.py answers.

The request is a file in the run's folder, so it reaches the runs of this machine.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launcher.backends.base import Backend, RunStatus, State, found_or_deleted
from launcher.errors import LauncherError
from launcher.json_object import json_object

REQUEST, ANSWER = "profile-request.json", "profile.json"


@dataclass(frozen=True)
class Profile:
    """A profile: its folder, and the recorded steps: the number of the first (from 0), and how many."""

    folder: str
    first_step: int
    steps: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def capture(backend: Backend, status: RunStatus, steps: int, say: Callable[[str], None] = lambda _: None) -> Profile:
    """Record the next steps of the run, and return the profile. `say` is called with a sentence if this waits.

    Raises LauncherError if the run is not on this machine, does not train, or ends before the steps are recorded.
    """
    from launcher.backends.local.record import write_json

    _refuse(backend, status)
    folder, number = Path(status.folder), uuid.uuid4().hex
    waits = status.step is None
    if waits:
        say(f'The run "{status.name}" is {status.state}; recording starts with its first step.')
    write_json(folder / REQUEST, {"id": number, "steps": steps})
    try:
        while (answer := _read(folder / ANSWER)).get("id") != number:
            status = found_or_deleted(backend.status(status.name), status.name)
            if status.state.ended and _read(folder / ANSWER).get("id") != number:
                raise LauncherError(f'The run "{status.name}" has {_ENDS[status.state]} before a step was recorded.')
            time.sleep(max(backend.poll_seconds, 0.2))
    finally:
        (folder / REQUEST).unlink(missing_ok=True)
    if answer.get("error"):
        raise LauncherError(f'The run "{status.name}" cannot be profiled: {answer["error"]}')
    return Profile(str(folder / str(answer["folder"])), int(answer["first_step"]), int(answer["steps"]))


_ENDS = {State.SUCCEEDED: "succeeded", State.FAILED: "failed", State.CANCELLED: "been cancelled"}


def _refuse(backend: Backend, status: RunStatus) -> None:
    """Raise LauncherError if the run cannot be profiled."""
    if status.state.ended:
        raise LauncherError(
            f'The run "{status.name}" has {_ENDS[status.state]}; only a run that trains can be profiled.',
            "To profile the start of a run: --set train.profiler=xplane",
        )
    if (backend.config_of(status.name).get("run") or {}).get("command"):
        raise LauncherError(
            f'The run "{status.name}" runs a command of its own (run.command), which Slipway cannot profile.'
        )
    if status.in_cluster:
        raise LauncherError(
            f'The run "{status.name}" is on a cluster; only a run on this machine can be profiled while it trains.',
            "To record steps of a run on a cluster, submit it with --set train.profiler=xplane "
            "--set train.skip_first_n_steps_for_profiler=10 --set train.profiler_steps=5 (--continue resumes it).",
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        return json_object(path.read_bytes()) or {}
    except FileNotFoundError:
        return {}
