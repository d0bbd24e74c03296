"""What a run leaves to read: metrics.jsonl and events.jsonl in its folder, and the same lines in its log.

Whoever follows a run in a cluster has only its log. There each line of metrics.jsonl stands after PREFIX, and each
event after EVENT_PREFIX. Look for them anywhere in a line: Ray puts "(RayTrainWorker pid=…, ip=…) " before what its
workers print, and "(TrainController pid=…) " before what the controller of Ray Train prints. A line that comes twice,
with the same `time`, is one. The events:

loop_started    step, steps, devices: the training loop begins at `step` of `steps`; again after each restart
worker_failed   message: a worker, or a host of run.command, failed; if restarts are left, all start again
preempted       message, step: a host was told to go; all stopped after `step` steps, and start again
command_started hosts: run.command begins on its hosts; again after each restart
driver_failed   message, restarts_left: the driver of a job failed and starts again (trainer/supervisor.py)
error           message: the sentence that this process ends with; the run's reason, if nothing starts it again

metrics.jsonl has one line a step, never one missing and never one twice, whatever was killed when: a
step's line is on disk before the checkpoint that makes the step final, and a start drops the lines of
the steps that it will do again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PREFIX = "SLIPWAY_METRICS "
EVENT_PREFIX = "SLIPWAY_EVENT "
_PAUSES = (0.2, 1.0, 3.0)


def now() -> str:
    """The time now, RFC 3339 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class MetricsFile:
    """metrics.jsonl of a run, open for the one process that writes it."""

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
        """Append one line, and print it on stdout after PREFIX for whoever reads the log."""
        text = json.dumps({key: _plain(value) for key, value in line.items()})
        self._file.write(text + "\n")
        self._file.flush()
        _print(PREFIX + text)

    def settle(self) -> None:
        """What was written is on the storage for good when this returns, as it has to be before a checkpoint.

        For a bucket that takes a close: gcsfuse keeps what is written to a file in its own memory or on the machine's
        disk, and `fsync` does not make the object since its streaming writes (docs/semantics.md of gcsfuse 3). What is
        appended to an object is uploaded as a whole below 2 MB, and alone above; at 250 bytes a step that is nothing
        beside a checkpoint. Lines since the last one are lost with their machine, and so are their steps.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a metrics file; a last line cut short by a kill is left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def event_line(event: str, **fields: Any) -> str:
    """{"event": …, "time": …, …}"""
    return json.dumps({"event": event, "time": now(), **fields})


def print_event(line: str) -> None:
    """Print a line of event_line's on stdout after EVENT_PREFIX."""
    _print(EVENT_PREFIX + line)


def _print(line: str) -> None:
    # A log that takes no more (a full disk) ends no training.
    with contextlib.suppress(OSError):
        print(line, flush=True)  # noqa: T201 - stdout is how the launcher follows a run on a cluster


def write_event(folder: Path, event: str, **fields: Any) -> None:
    """Print the event and append it to events.jsonl; safe from several processes.

    From several machines, too: of two that change an object through gcsfuse at the same time one is told ESTALE when
    it closes the file (docs/semantics.md there), and writes again.
    """
    line = event_line(event, **fields)
    print_event(line)
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
    # An evaluation's step counts the updates that were made, so the one made right before a checkpoint
    # at the end of step s has step s + 1, where the restart begins.
    return bool(line["step"] <= start_step if "eval_loss" in line else line["step"] < start_step)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity; a loss that is one of them is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
