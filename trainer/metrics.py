"""The run's readable output: metrics.jsonl and events.jsonl in its folder, and the same lines in its log.

For a run in a cluster, only the log may be available. There each line of metrics.jsonl follows PREFIX, and each
event follows EVENT_PREFIX. Search for them anywhere in a line: Ray puts "(RayTrainWorker pid=…, ip=…) " before output
of its workers, and "(TrainController pid=…) " before output of Ray Train's controller. A line that appears twice,
with the same `time`, is one line. EVENTS lists the events.

metrics.jsonl has exactly one line per step, even if processes are killed: a
step's line is on disk before the checkpoint that makes the step final, and a start drops the lines of
the steps that it will repeat.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

PREFIX = "SLIPWAY_METRICS "
EVENT_PREFIX = "SLIPWAY_EVENT "
TRY_AGAIN = 75
"""The exit code of a trainer whose local Ray did not start in time: EX_TEMPFAIL of sysexits.h."""
PHASES = ("ray", "imports", "data", "compile", "training", "evaluation", "checkpoint")
"""The phases of a run, in the order in which they first occur. launcher/trainer_output.py has their words."""


class EventType(NamedTuple):
    """The keys of a kind of event in addition to event and time, and what the event means."""

    fields: tuple[str, ...]
    means: str


EVENTS: Mapping[str, EventType] = {
    "phase": EventType(
        ("phase",),
        f"The run enters this phase: {', '.join(PHASES)}. In a cluster, this event is only in the log.",
    ),
    "loop_started": EventType(
        ("step", "steps", "devices"), "The training loop starts at `step` of `steps`; again after each restart."
    ),
    "command_started": EventType(("hosts",), "run.command starts on its hosts; again after each restart."),
    "worker_failed": EventType(
        ("message",), "A worker, or a host of run.command, failed. If restarts are left, all start again."
    ),
    "driver_failed": EventType(
        ("message", "restarts_left"), "The driver of a job in a Ray cluster failed and starts again."
    ),
    "preempted": EventType(
        ("message", "step"), "A host received a stop signal; all hosts stopped after `step` steps, and may start again."
    ),
    "stopped": EventType(
        ("message", "step"), "A run on this machine was cancelled; all its hosts stopped after `step` steps."
    ),
    "slow_host": EventType(
        ("message", "host", "node", "step"),
        "The host with the index `host`, on the Kubernetes node `node`, is slower than the others. Noticed after "
        "`step` steps.",
    ),
    "checkpoint_period": EventType(
        ("message", "step"),
        "train.checkpoint_period is auto, and the run chose the steps between two checkpoints, after `step` steps.",
    ),
    "sample": EventType(
        ("step", "prompt", "message"),
        "The model's answer (`message`) to a prompt of tuning.samples after `step` steps.",
    ),
    "error": EventType(
        ("message",), "The sentence that this process ends with; the reason of the run, if nothing restarts it."
    ),
}
"""Each kind of event. launcher/trainer_output.py reads them."""
_PAUSES = (0.2, 1.0, 3.0)
listeners: list[Callable[[str, Mapping[str, Any]], None]] = []
"""Functions of this process that receive each event that it writes, with its fields. They return at once."""


def now() -> str:
    """Return the current time, RFC 3339 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class MetricsFile:
    """metrics.jsonl of a run, open in the one process that writes it."""

    def __init__(self, folder: Path, *, start_step: int) -> None:
        """Keep the lines of the steps before `start_step` and of evaluations up to it; drop the rest."""
        self._path = folder / "metrics.jsonl"
        kept = [line for line in read(self._path) if _before(line, start_step)] if start_step else []
        draft = self._path.with_suffix(".tmp")
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in kept)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        self._file = self._path.open("a", encoding="utf-8")

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line, and print it on stdout after PREFIX for readers of the log."""
        text = json.dumps({key: _plain(value) for key, value in line.items()})
        self._file.write(text + "\n")
        self._file.flush()
        print_line(PREFIX + text)

    def settle(self) -> None:
        """Persist all written lines to storage, as required before a checkpoint.

        For a bucket this requires a close: gcsfuse keeps data written to a file in its own memory or on the machine's
        disk, and since its streaming writes `fsync` does not create the object (docs/semantics.md of gcsfuse 3). An
        append to an object uploads the whole object below 2 MB, and only the new data above. At 250 bytes per step this
        is negligible next to a checkpoint. Lines since the last one are lost with their machine, as are their steps.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics file. Skips a last line that a kill truncated."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def event_line(event: str, **fields: Any) -> str:
    """Return {"event": …, "time": …, …}. Raises ValueError if `fields` are not those of the event."""
    if fields.keys() != set(EVENTS[event].fields):
        raise ValueError(f"The fields of the event {event} are {EVENTS[event].fields}, not {tuple(fields)}.")
    return json.dumps({"event": event, "time": now(), **fields})


def print_event(line: str) -> None:
    """Print a line from event_line on stdout after EVENT_PREFIX."""
    print_line(EVENT_PREFIX + line)


def print_line(line: str) -> None:
    """Print a line on stdout, the log of the run."""
    # A log that cannot be written (a full disk) must not end the training.
    with contextlib.suppress(OSError):
        print(line, flush=True)  # noqa: T201 - the launcher follows a run on a cluster through stdout


def write_event(folder: Path, event: str, **fields: Any) -> None:
    """Print the event and append it to events.jsonl. Safe from several processes.

    Also safe from several machines: if two change an object through gcsfuse at the same time, one gets ESTALE when
    it closes the file (gcsfuse's docs/semantics.md), and writes again.
    """
    line = event_line(event, **fields)
    print_event(line)
    for listener in listeners:
        listener(event, fields)
    for pause in _PAUSES:
        try:
            return _append(folder / "events.jsonl", f"{line}\n".encode())
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            time.sleep(pause)
    return _append(folder / "events.jsonl", f"{line}\n".encode())


def _append(path: Path, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)


def _before(line: Mapping[str, Any], start_step: int) -> bool:
    # An evaluation's step counts the finished updates, so the one right before a checkpoint
    # at the end of step s has step s + 1, where the restart begins.
    return bool(line["step"] <= start_step if "eval_loss" in line else line["step"] < start_step)


def _plain(value: Any) -> Any:
    """Replace NaN and infinity with None, because JSON has neither."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
