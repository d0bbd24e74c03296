"""Request a profile of a training that runs. trainer/profiling.py answers.

The request is a file in the run's folder. For a run on a cluster, a command in one of its pods writes it.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.backends.base import Backend, RunStatus, State, found_or_deleted
from launcher.backends.local.record import write_json
from launcher.errors import LauncherError
from launcher.json_object import json_object

if TYPE_CHECKING:
    from launcher.products.common.pod_exec import Session

REQUEST, ANSWER = "profile-request.json", "profile.json"


@dataclass(frozen=True)
class Profile:
    """A profile: its folder, and the recorded steps: the number of the first (from 0), and how many."""

    folder: str
    first_step: int
    steps: int


def capture(backend: Backend, status: RunStatus, steps: int, say: Callable[[str], None] = lambda _: None) -> Profile:
    """Record the next steps of the run, and return the profile. `say` is called with sentences about what it waits for.

    Raises LauncherError if the run does not train, or ends before the steps are recorded, and if the user may not run
    commands in the pods of a run on a cluster.
    """
    _refuse(backend, status)
    what = "the next step" if steps == 1 else f"the next {steps} steps"
    say(f'Recording {what} of the run "{status.name}". Press Ctrl-C to stop waiting.')
    if status.step is None:
        say(f'The run "{status.name}" is {status.state}; recording starts with its first step.')
    answer = _in_pod(backend, status, steps) if status.in_cluster else _here(backend, status, steps)
    if answer.get("error"):
        raise LauncherError(f'The run "{status.name}" cannot be profiled: {answer["error"]}')
    return Profile(f"{status.folder}/{answer['folder']}", int(answer["first_step"]), int(answer["steps"]))


def _here(backend: Backend, status: RunStatus, steps: int) -> dict[str, Any]:
    """Write the request to the folder of a local run, and return the trainer's answer."""
    folder, number = Path(status.folder), uuid.uuid4().hex
    write_json(folder / REQUEST, {"id": number, "steps": steps})
    try:
        while (answer := _read(folder / ANSWER)).get("id") != number:
            status = found_or_deleted(backend.status(status.name), status.name)
            if status.state.ended and _read(folder / ANSWER).get("id") != number:
                raise LauncherError(f'The run "{status.name}" has {_ENDS[status.state]} before a step was recorded.')
            time.sleep(max(backend.poll_seconds, 0.2))
    finally:
        (folder / REQUEST).unlink(missing_ok=True)
    return answer


def _in_pod(backend: Backend, status: RunStatus, steps: int) -> dict[str, Any]:
    """Request the profile in the pod of the first host, and return the trainer's answer."""
    from launcher.products.inspect import shell

    storage = backend.config_of(status.name).get("storage") or {}
    try:
        session = shell.start(
            backend, status, 0, pod_command(f"{storage.get('mountPath')}/{status.name}", steps), terminal=False
        )
    except LauncherError as error:
        raise LauncherError(error.message, f"{error.hint} {_WITHOUT_EXEC}".strip()) from error
    with contextlib.closing(session):
        return answer_of(session)


def pod_command(folder: str, steps: int) -> list[str]:
    """Return the command that requests a profile in a pod and prints the answer (trainer/profiling.py)."""
    return ["python", "-m", "trainer.profiling", folder, str(steps)]


def answer_of(session: Session) -> dict[str, Any]:
    """Return the answer that the command in the pod prints. Raises LauncherError with its error if it fails."""
    printed: dict[int, bytes] = {}
    while session.exit_code is None:
        for channel, content in session.messages():
            printed[channel] = printed.get(channel, b"") + content
    answer = json_object(printed.get(1, b""))
    if session.exit_code or answer is None:
        reason = printed.get(2, b"").decode(errors="replace").strip().splitlines()
        raise LauncherError(reason[-1] if reason else f"The command in the pod ended with code {session.exit_code}.")
    return answer


_WITHOUT_EXEC = (
    "To record steps without running a command in a pod, submit the run with --set train.profiler=xplane "
    "--set train.skip_first_n_steps_for_profiler=10 --set train.profiler_steps=5 (--continue resumes it)."
)
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


def _read(path: Path) -> dict[str, Any]:
    try:
        return json_object(path.read_bytes()) or {}
    except FileNotFoundError:
        return {}
