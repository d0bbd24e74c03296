"""Read the folder of a local run from outside its supervisor: whether it exists, its lock, and its status."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launcher.backends import progress, run_config
from launcher.backends.base import RunStatus, State
from launcher.backends.local.record import (
    CONFIG,
    ENDED,
    LOCK,
    LOG,
    RECORD,
    Record,
    RecordError,
    command_of,
    hosts,
    is_locked,
    parse_lines,
    read_events,
    read_lines,
    read_record,
    timestamp,
)
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError
from launcher.json_object import is_shallow, load_json
from launcher.k8s.shapes import Map, Shape, fault, moment, number, text
from launcher.trainer_output import EVENTS_FILE, METRICS_FILE, TrainerState

_INTERRUPTED = "Interrupted: its supervisor was killed, or the machine restarted; submit it again to resume it."
_STARTING = "loading and compiling the model"
# The bytes to read at each end of metrics.jsonl, which may be large: enough for the first losses and the last 20 steps.
_METRICS_END = 128 << 10


def _state(value: Any) -> str:
    return "" if isinstance(value, str) and value in State else "a state of a run"


def _size(value: Any) -> str:
    return number(value) or ("" if value >= 0 else "a whole number of at least 0")


def _shallow(value: Any) -> str:
    return "" if is_shallow(value) else "a value of fewer levels"


_RECORD: Shape = {
    **{f"{key}!": text for key in ("name", "namespace", "id", "reason", "host", "sweep")},
    **{f"{key}!": number for key in ("attempt", "restarts", "sweep_number")},
    **dict.fromkeys(("submitted!", "started", "ended"), moment),
    **dict.fromkeys(("exit_code", "pid"), number),
    "state!": _state,
    "events_from!": _size,
    "sweep_values!": Map(_shallow),
    "history!": [Map(_shallow)],
}


class ForeignFolderError(LauncherError):
    """A folder in the folder of runs that is not a run."""


@dataclass(frozen=True)
class RunFolder:
    """A snapshot of a run's folder: its record, and whether its supervisor is alive."""

    path: Path
    record: Record
    alive: bool

    @property
    def active(self) -> bool:
        return self.record.state not in ENDED and self.alive

    @property
    def interrupted(self) -> bool:
        return self.record.state not in ENDED and not self.alive

    @property
    def steps_in_checkpoint(self) -> int:
        """The steps of the last checkpoint: a folder with the number of its last step (an incomplete one has a longer
        name). 0 if there is none."""
        checkpoints = self.path / "checkpoints"
        paths = checkpoints.iterdir() if checkpoints.is_dir() else ()
        return max((int(path.name) + 1 for path in paths if path.name.isdigit()), default=0)

    @property
    def last_sign_of_life(self) -> str:
        files = [path for name in (LOG, METRICS_FILE, EVENTS_FILE, RECORD) if (path := self.path / name).exists()]
        return timestamp(max(path.stat().st_mtime for path in files))

    def config(self) -> dict[str, Any]:
        """Return the run config. Raises LauncherError if it is damaged."""
        path = self.path / CONFIG
        try:
            config = dict(load_json(path.read_bytes()))
        except (ValueError, TypeError, RecursionError, FileNotFoundError) as error:
            raise LauncherError(f"{path} is damaged; move the folder away, or remove it by hand.") from error
        if problem := run_config.wrong(config):
            raise _damaged(path, problem)
        return config

    def status(self) -> RunStatus:
        """Return the status from the record, events and metrics."""
        config = self.config()
        events = read_events(self.path, self.record.events_from)
        state, reason = self._state(events)
        training = not command_of(config)
        steps = events.steps or ((config.get("train") or {}).get("steps") if training else None)
        status = RunStatus(
            name=self.record.name,
            namespace=self.record.namespace,
            kind=RunKind.LOCAL,
            state=state,
            reason=reason,
            steps=steps if isinstance(steps, int) and steps > 0 else None,
            submitted=self.record.submitted,
            started=self.record.started,
            ended=self.last_sign_of_life if self.interrupted else self.record.ended,
            restarts=self.record.restarts + (events.restarts if self.record.state not in ENDED else 0),
            attempt=self.record.attempt,
            folder=str(self.path),
            sweep=self.record.sweep,
            sweep_values=dict(self.record.sweep_values),
        )
        chips = hosts(config) * int((config.get("accelerator") or {}).get("chipsPerHost") or 1)
        return _with_metrics(status, self.path / METRICS_FILE, events.devices or chips)

    def _state(self, events: TrainerState) -> tuple[State, str]:
        """Return the run's state and reason, from the record and, for a training run, the later events."""
        state = State(self.record.state)
        if self.interrupted:
            return State.FAILED, _INTERRUPTED
        if state in (State.STARTING, State.RESTARTING):
            if events.failing:
                return State.RESTARTING, events.failure
            if events.loops:
                return State.RUNNING, events.doing
            if state is State.STARTING:
                return state, events.doing or _STARTING
        return state, self.record.reason


def find(runs: Path, name: str) -> RunFolder | None:
    """Return the run called `name` in `runs`, or None. Raises LauncherError if the folder is not a valid run."""
    if not name or name.startswith(".") or "/" in name or "\0" in name:  # not a valid name of a run
        return None
    path = runs / name
    try:
        seen = _record(path)
        if seen.state in ENDED or (alive := is_locked(path / LOCK)):
            return RunFolder(path, seen, alive=True)
        # The run may have ended between the two reads: the record is final before the lock is released.
        return RunFolder(path, _record(path), alive=alive)
    except FileNotFoundError:
        with contextlib.suppress(FileNotFoundError):
            if any(path.iterdir()):
                raise ForeignFolderError(
                    f"{path} already exists, but Slipway did not create it; move it away, or use another name."
                ) from None
        return None
    except RecordError as error:
        raise LauncherError(str(error)) from error


def make_private(runs: Path) -> str:
    """Create the folder of runs for this user only; return a sentence if existing permissions were removed, else "".

    The folder above it, ~/.slipway, is treated alike if it contains nothing else. Folders of other users are not
    changed.
    """
    changed = ""
    for path in (runs.parent, runs):
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
        status = path.stat()
        wide = status.st_mode & 0o077
        if not wide or status.st_uid != os.geteuid() or (path != runs and set(path.iterdir()) - {runs}):
            continue
        path.chmod(status.st_mode & 0o700)
        changed = f"Other users of this machine could read {path}; now only you can."
    return changed


def _record(path: Path) -> Record:
    record = read_record(path)
    if problem := fault(vars(record), _RECORD):
        raise _damaged(path / RECORD, problem)
    return record


def _damaged(path: Path, problem: str) -> LauncherError:
    return LauncherError(f"{path} is damaged: {problem}; move the folder away, or remove it by hand.")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int | None]:
    """Yield a file descriptor that holds the run's lock, or None if another process holds it or the run is deleted."""
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        yield None
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Check whether the folder was renamed (deleted) or replaced in the meantime.
            file = path / LOCK
            ours = file.exists() and os.path.samestat(file.stat(), os.fstat(lock))
        except BlockingIOError:
            ours = False
        yield lock if ours else None
    finally:
        os.close(lock)


def size(path: Path) -> int:
    """Return a file's size in bytes; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# --- metrics.jsonl ----------------------------------------------------------------------------------------------


def _with_metrics(status: RunStatus, path: Path, devices: int) -> RunStatus:
    """Return the status with the step, losses and speed from metrics.jsonl."""
    head, tail = _ends(path)
    first, last = progress.of_metrics(head, devices=devices), progress.of_metrics(tail, devices=devices)
    last = replace(last, loss_first=first.loss_first, eval_loss_first=first.eval_loss_first)
    return progress.apply(status, last)


def _ends(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the first and the last lines of a metrics file. For a small file, both are all lines."""
    total = size(path)
    if total <= 2 * _METRICS_END:
        lines = list(read_lines(path))
        return lines, lines
    with path.open("rb") as file:
        head = file.read(_METRICS_END)
    return list(parse_lines(head)), list(read_lines(path, total - _METRICS_END))
