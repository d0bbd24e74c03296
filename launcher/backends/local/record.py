"""The files in a local run's folder that hold its status: record.json, events.jsonl, metrics.jsonl.

This module imports only the standard library, and modules that import nothing else, because the supervisor, which runs
next to training for days, also uses it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launcher.json_object import json_object, load_json
from launcher.trainer_output import EVENTS_FILE, TrainerState, events_of, state_after

FORMAT = 1
"""The version of record.json and of the folder. A folder with a newer version is not used."""

RECORD, CONFIG, ORIGINS, LOCK, LOG = "record.json", "run.json", "origins.json", "lock", "log.txt"
ENDED = ("succeeded", "failed", "cancelled")


class RecordError(Exception):
    """record.json cannot be used. The text is a sentence for the user."""


@dataclass(frozen=True)
class Record:
    """The content of record.json: the run's current attempt.

    `restarts` is the number of restarts before the current processes started, and `events_from` the size of
    events.jsonl at that time: later restarts by the trainer itself come after it. `sweep_number` is the number of the
    run in its sweep, from 1. `history` has an entry for each previous attempt: attempt, submitted, started, ended,
    state.
    """

    name: str
    namespace: str
    id: str
    attempt: int
    state: str
    submitted: str
    started: str | None = None
    ended: str | None = None
    exit_code: int | None = None
    reason: str = ""
    restarts: int = 0
    events_from: int = 0
    pid: int | None = None
    host: str = ""
    sweep: str = ""
    sweep_number: int = 0
    sweep_values: Mapping[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


def now() -> str:
    """Return the current time, RFC 3339 in UTC."""
    return timestamp(time.time())


def timestamp(seconds: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace the file atomically: readers see the old or the new text. Raises OSError with the file's name."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "w", encoding="utf-8", opener=private) as file:
            json.dump(data, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def private(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=private)`. New files are for this user only."""
    return os.open(path, flags, 0o600)


def write_record(folder: Path, record: Record) -> None:
    write_json(folder / RECORD, {"format": FORMAT, "kind": "local", **asdict(record)})


def read_record(folder: Path) -> Record:
    """Return the record of the run in `folder`.

    Raises FileNotFoundError if the folder has no record, and RecordError if the record cannot be used.
    """
    path = folder / RECORD
    try:
        tree = load_json(path.read_bytes())
        version = tree["format"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RecordError(f"{path} is damaged; move the folder away, or remove it by hand.") from error
    if not isinstance(version, int) or version > FORMAT:
        raise RecordError(
            f"The run in {folder} was created by a newer Slipway (record format {version}; this one reads {FORMAT}); "
            "upgrade Slipway to use it."
        )
    known = {field.name for field in fields(Record)}
    try:
        return Record(**{key: value for key, value in tree.items() if key in known})
    except TypeError as error:
        raise RecordError(f"{path} is damaged; move the folder away, or remove it by hand.") from error


def read_lines(path: Path, start: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file of lines, from byte `start`; none if the file does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return
    yield from parse_lines(data)


def parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects, one per line. Incomplete lines are skipped."""
    for line in data.split(b"\n"):
        if (entry := json_object(line)) is not None:
            yield entry


def count_lines(path: Path) -> int:
    """Return the number of lines of a file; 0 if it cannot be read."""
    try:
        with path.open("rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


def read_events(folder: Path, start: int) -> TrainerState:
    """Return what events.jsonl reports from byte `start`, where the current processes started."""
    return state_after(events_of(read_lines(folder / EVENTS_FILE, start)))


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock. Tries a shared lock, so that concurrent checks do not conflict."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


# The time for a process to end after SIGTERM: enough to write a checkpoint, and the default of a Kubernetes pod.
GRACE_SECONDS = 30.0


def hosts(config: Mapping[str, Any]) -> int:
    """Return the number of hosts of the run, over all its slices."""
    part = config.get("slice") or {}
    per_slice = (config.get("accelerator") or {}).get("hosts") or part.get("hosts") or 1
    return int(per_slice) * int(part.get("count") or 1)


def command_of(config: Mapping[str, Any]) -> list[str]:
    """Return the user's own command, or [] if the run trains."""
    return [str(word) for word in (config.get("run") or {}).get("command") or []]


def uses_ray(config: Mapping[str, Any]) -> bool:
    """Return whether a training on this machine needs Ray: for several hosts, or to limit it to a number of GPUs."""
    return hosts(config) > 1 or (config.get("accelerator") or {}).get("kind") == "gpu"
