"""The state of the board: queues with their quota, and runs with their progress. One thread reads it.

Reading a thousand runs takes a second of processor time, so the pause between two readings follows from the time that
the process has used since the last one (`SHARE`). Nothing is read while no page is open.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from launcher import api, hooks
from launcher.backends.base import RunStatus, State
from launcher.backends.lookup import find
from launcher.errors import LauncherError
from launcher.k8s.target import Target
from launcher.products.platform import queues as platform_queues

SHARE = 0.04
"""The part of a processor that the board may use."""
LEAST_PAUSE = 5.0
"""Seconds between two readings, at least."""
_UNWATCHED = 30.0  # seconds after the last request, after which no page is open
_DETAILS = 8  # runs whose logs are read each time
_POINTS = 60
_WAITING = (State.QUEUED, State.PREEMPTED)
_ACTIVE = (State.RUNNING, State.RESTARTING)
_FIELDS = ("namespace", "name", "team", "kind", "queue", "priority", "position", "step", "steps", "loss", "restarts")


@dataclass
class _Progress:
    """The progress of a run by its logs: losses by step, and the measured and the forecast seconds of a step."""

    attempt: int
    losses: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_POINTS))
    step_seconds: float | None = None
    forecast_seconds: float | None = None
    read: float = 0.0


class Board:
    """The state of the board, as JSON. `text` starts the first reading, and waits for it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._wanted = threading.Event()
        self._ready = threading.Event()
        self._asked = time.monotonic()
        self._progress: dict[tuple[str, str], _Progress] = {}
        self._text = ""
        threading.Thread(target=self._follow, name="board", daemon=True).start()

    def text(self) -> str:
        """Return the state as JSON: `made`, `pause`, `queues`, `runs` and `notes`."""
        self._asked = time.monotonic()
        self._wanted.set()
        self._ready.wait()
        return self._text

    def _follow(self) -> None:
        used = time.process_time()
        while True:
            self._wanted.wait()
            try:
                state = self._read()
            except Exception as error:  # the page shows it, and the next reading may work
                state = {"queues": None, "runs": [], "notes": [sentence(error)]}
            # All threads count: those that list, and that which shows the state.
            before, used = used, time.process_time()
            pause = max(LEAST_PAUSE, (used - before) / SHARE)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._text = json.dumps({"made": now, "pause": round(pause), **state}, default=str)
            self._ready.set()
            time.sleep(pause)
            if time.monotonic() - self._asked > _UNWATCHED:
                self._wanted.clear()

    def _read(self) -> dict[str, Any]:
        notes: list[str] = []
        runs = api.list_runs(notes.append, target=self._target)
        self._read_details(runs)
        queues: Any = None
        with suppress(LauncherError):  # this machine alone, or no Kueue
            use = platform_queues.read(self._target.cluster(), everywhere=self._target.all_namespaces)
            if use.cluster_queues is None:
                notes.append("You may not list ClusterQueues, so their quota is not shown.")
            queues = [_queue(queue) for queue in use.cluster_queues or ()]
        starts = self._starts(runs, notes)
        return {"queues": queues, "runs": [self._run(run, starts.get(run.name, "")) for run in runs], "notes": notes}

    def _starts(self, runs: Sequence[RunStatus], notes: list[str]) -> dict[str, str]:
        """Return when the runs of the namespace that wait will start, by name."""
        if self._target.all_namespaces or not any(run.state in _WAITING and run.in_cluster for run in runs):
            return {}
        try:
            return {name: start.likely for name, start in hooks.expected_starts(self._target, within=2.0).items()}
        except LauncherError as error:
            notes.append(sentence(error))
            return {}

    def _read_details(self, runs: Sequence[RunStatus]) -> None:
        """Read the logs of the active runs that were read longest ago."""
        active = {(run.namespace, run.name): run for run in runs if run.state in _ACTIVE}
        self._progress = {
            key: self._progress[key]
            if key in self._progress and self._progress[key].attempt == run.attempt
            else _Progress(run.attempt)
            for key, run in active.items()
        }
        oldest = sorted(active, key=lambda key: (self._progress[key].read, key))
        for key in oldest[:_DETAILS]:
            with suppress(LauncherError):  # the run has just ended
                self._read_run(active[key], self._progress[key])

    def _read_run(self, run: RunStatus, progress: _Progress) -> None:
        first = not progress.read
        progress.read = time.monotonic()
        target = self._target
        if run.in_cluster and run.namespace:
            target = Target(context=target.context, namespace=run.namespace)
        backend, now = find(run.name, target)
        if first:
            config = backend.config_of(run.name)
            speed = hooks.forecast_speed(config)
            progress.forecast_seconds = None if speed is None else float(speed.step_seconds)
            for entry in backend.metrics(run.name)[-_POINTS:]:
                if isinstance(entry.get("loss"), float) and isinstance(entry.get("step"), int):
                    progress.losses.append((entry["step"], entry["loss"]))
        if now.step is not None and now.loss is not None and (not progress.losses or now.step > progress.losses[-1][0]):
            progress.losses.append((now.step, now.loss))
        if now.seconds_left and now.steps and now.step is not None and now.steps > now.step:
            progress.step_seconds = now.seconds_left / (now.steps - now.step)

    def _run(self, run: RunStatus, start: str) -> dict[str, Any]:
        progress = self._progress.get((run.namespace, run.name))
        row = {key: getattr(run, key) for key in _FIELDS}
        row |= {"state": run.state.value, "machines": run.machines, "submitted": run.submitted, "starts": start}
        # Why it waits, or failed.
        row["reason"] = run.reason if run.state in (*_WAITING, State.FAILED) or run.stuck else ""
        if progress is not None:
            row["losses"] = [loss for _, loss in progress.losses]
            if progress.losses:
                row["step"], row["loss"] = progress.losses[-1]
            if progress.step_seconds and progress.forecast_seconds:
                row["speed"] = progress.forecast_seconds / progress.step_seconds
        return row


def sentence(error: Exception) -> str:
    """Return an error as one sentence for the page."""
    return f"{error.message} {error.hint}".strip() if isinstance(error, LauncherError) else f"{error!r}"


def _queue(queue: platform_queues.QueueUse) -> dict[str, Any]:
    quotas = platform_queues.shown(queue.quotas, lambda row: (row.flavor, row.resource))
    rows = [
        {key: value if isinstance(value, str) else float(value) for key, value in vars(quota).items()}
        for quota in quotas
    ]
    return {**vars(queue), "quotas": rows}
