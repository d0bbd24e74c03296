"""The process of the first host keeps the record while it trains, and notices what deserves a notification."""

from __future__ import annotations

import copy
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate

from trainer import metrics
from trainer.config import RunConfig
from trainer.metrics import now
from trainer.reporting import record
from trainer.reporting.patience import within
from trainer.reporting.process import Notifications, of_process
from trainer.telemetry.log import warn

_SECONDS_BETWEEN_LOOKS = 5.0
_SECONDS_BETWEEN_RECORDS = 60.0
_SECONDS_TO_END = 5.0
_SECONDS_OF_STORAGE = 10.0
"""How long one access to the record may take; the next one is tried later."""
_STEPS_OF_SPEED = 10
_TIMES_SLOWER = 10
"""No step for this many times as long as a step usually takes is a stall, if it is also longer than stalledSeconds."""


def _harmless[**P](method: Callable[Concatenate[Reporter, P], None]) -> Callable[Concatenate[Reporter, P], None]:
    """Return a method that warns, once, instead of raising: no record is worth a run."""

    @wraps(method)
    def call(reporter: Reporter, /, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            method(reporter, *arguments, **options)
        except Exception as error:
            reporter.warn(f"{type(error).__name__}: {error}")

    return call


class Reporter:
    """The record and the notifications of one start of the training. Its methods return at once, and never raise."""

    def __init__(self, config: RunConfig, *, seconds_between_looks: float = _SECONDS_BETWEEN_LOOKS) -> None:
        self._config = config
        self._settings: Mapping[str, Any] = config.tree.get("notify") or {}
        self._notifications: Notifications = of_process(config)
        self._every = seconds_between_looks
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._over = False
        self._changed = True
        self._warned = False
        self._record: dict[str, Any] = {}
        self._phase, self._since = "imports", time.monotonic()
        self._begun = now()
        self._last_step = self._last_checkpoint = time.monotonic()
        self._durations: deque[float] = deque(maxlen=50)
        self._notified: set[str] = set()
        self._spent: dict[str, float] = {}
        self._waited: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="record", daemon=True)
        self._pending: list[Callable[[dict[str, Any]], None]] = []
        metrics.listeners.append(self.on_event)
        self._start()

    @_harmless
    def _start(self) -> None:
        self._wake.set()
        self._thread.start()

    # --- called by the training ---

    @_harmless
    def enter(self, phase: str) -> None:
        at = time.monotonic()
        before, seconds = self._phase, at - self._since
        self._phase, self._since = phase, at
        self._later(lambda _: record.add_seconds(self._spent, before, seconds))

    @_harmless
    def loop_starts(self, *, step: int, steps: int) -> None:
        self._last_step = self._last_checkpoint = time.monotonic()

        def change(attempt: dict[str, Any]) -> None:
            attempt["from_step"] = attempt["steps"] = step
            self._set(state="running", reason="", steps=step, steps_wanted=steps)

        self._later(change, write=True)

    @_harmless
    def line(self, line: Mapping[str, Any], *, devices: int) -> None:
        """Take a line of metrics.jsonl."""
        if "loss" not in line:
            return
        first, at = not self._durations, str(line["time"])
        done, seconds, rate = int(line["step"]) + 1, float(line["step_seconds"]), line["tokens_per_second_per_device"]
        self._last_step = time.monotonic()
        self._notified.discard("stalled")
        if not first:
            self._durations.append(seconds)
        else:
            self._durations.append(0.0)  # the first step compiles
            sentence = f"Its loss is {float(line['loss']):.3f}."
            self._later(lambda _: self._notifications.send("first-step", sentence, step=done))

        def change(attempt: dict[str, Any]) -> None:
            attempt["first_step"] = attempt["first_step"] or at
            attempt["steps"] = done
            tokens = round(rate * seconds * devices) * done if rate else None
            self._set(steps=done, tokens=tokens)
            self._record["times"]["first_step"] = self._record["times"]["first_step"] or at

        self._later(change, write=first)

    @_harmless
    def checkpoint_saved(self) -> None:
        self._last_checkpoint = time.monotonic()
        self._notified.discard("checkpoint-too-old")
        self._later(lambda _: None, write=True)

    def on_event(self, event: str, fields: Mapping[str, Any]) -> None:
        """Keep a slow host (trainer/training/slow_hosts.py) in the record."""
        if event == "slow_host":
            row = {"time": now(), **{key: fields[key] for key in ("host", "node", "message")}}
            self._later(lambda attempt: attempt.setdefault("slow_hosts", []).append(row), write=True)

    @_harmless
    def waited_for_data(self, seconds: float) -> None:
        """Count seconds of the training in which the chips had no data."""
        self._later(lambda _: record.add_seconds(self._waited, "training", seconds))

    @_harmless
    def close(self, end: str = "") -> None:
        """End the attempt, and wait a few seconds until its record is written. `end` is how, if that is known."""
        if self._over:
            return
        self.enter("")

        def change(attempt: dict[str, Any]) -> None:
            attempt["ended"], attempt["end"] = now(), end

        self._later(change, write=True)
        self._over = True
        self._wake.set()
        self._thread.join(_SECONDS_TO_END)

    def _later(self, change: Callable[[dict[str, Any]], None], *, write: bool = False) -> None:
        with self._lock:
            self._pending.append(change)
            self._changed = self._changed or write
        if write:
            self._wake.set()

    # --- the thread ---

    def _run(self) -> None:
        written = 0.0
        while True:
            self._wake.wait(self._every)
            self._wake.clear()
            over = self._over
            with self._lock:
                pending, self._pending = self._pending, []
                changed, self._changed = self._changed, False
            try:
                self._apply(pending)
                if not over:
                    self._look()
                if changed or over or time.monotonic() - written >= _SECONDS_BETWEEN_RECORDS:
                    self._write()
                    written = time.monotonic()
            except Exception as error:  # no record is worth a run
                self.warn(f"{type(error).__name__}: {error}")
            if over:
                return

    def _apply(self, pending: list[Callable[[dict[str, Any]], None]]) -> None:
        if not self._record:
            try:
                kept = within(_SECONDS_OF_STORAGE, record.read, self._config.folder)
            except OSError:  # the storage does not answer: an empty record is better than none
                kept = {}
            before: list[dict[str, Any]] = kept.get("attempts") or []
            self._record = record.started(self._config, kept, self._begun)
            self._notifications.attempt = len(before) + 1
            if before and not before[-1].get("ended"):  # it was killed, and only Ray's controller may have noticed
                detail = f"Attempt {len(before)} was killed; attempt {len(before) + 1} has started."
                self._notifications.send("failed", detail, attempt=len(before), step=before[-1].get("steps"))
        for change in pending:
            change(self._record["attempts"][-1])

    def _set(self, **values: Any) -> None:
        self._record |= values

    def _write(self) -> None:
        if not self._record:
            return
        attempt = self._record["attempts"][-1]
        attempt["seen"] = now()
        spent = dict(self._spent)
        if not attempt["ended"]:  # with the seconds of the current phase
            record.add_seconds(spent, self._phase, time.monotonic() - self._since)
        waited = min(self._waited.get("training", 0.0), spent.get("training", 0.0))
        if waited:
            spent |= {"training": spent["training"] - waited, "data": waited}
        attempt["seconds"] = {cause: round(seconds, 3) for cause, seconds in spent.items()}
        try:
            # A copy: a write that hangs, and ends later, must write one state.
            within(_SECONDS_OF_STORAGE, record.write, self._config.folder, copy.deepcopy(self._record))
        except OSError as error:
            self.warn(error.strerror or str(error))

    def warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            warn(f"The record of the run cannot be written: {reason}. Training continues.")

    def _look(self) -> None:
        """Send a notification if the run does not train, has an old checkpoint, or is slower than its forecast."""
        if self._phase not in ("training", "checkpoint") or not self._durations:
            return
        at, recent = time.monotonic(), [each for each in self._durations if each]
        usual = statistics.median(recent) if recent else 0.0
        limit, idle = float(self._settings.get("stalledSeconds") or 0), at - self._last_step
        if limit and idle > max(limit, _TIMES_SLOWER * usual):
            self._notify("stalled", f"It has finished no step for {idle:.0f} s; a step takes {usual:.1f} s.")
        limit, age = float(self._settings.get("checkpointSeconds") or 0), at - self._last_checkpoint
        if limit and age > limit and self._config.train.get("enable_checkpointing") is not False:
            self._notify("checkpoint-too-old", f"Its last checkpoint is {age:.0f} s old; a failure would repeat them.")
        tracking: Mapping[str, Any] = self._config.tree.get("tracking") or {}
        forecast, most = float(tracking.get("forecastStepSeconds") or 0), float(self._settings.get("slowdown") or 0)
        speed = statistics.median(recent[-_STEPS_OF_SPEED:]) if len(recent) >= _STEPS_OF_SPEED else 0.0
        if speed:
            self._keep_speed(speed, forecast)
        if forecast and most and speed > forecast * most:
            slower = round(100 * (speed / forecast - 1))
            self._notify(
                "slower-than-forecast",
                f"A step takes {speed:.2f} s, {slower} % more than the forecast of {forecast:.2f} s.",
                once=True,
            )

    def _keep_speed(self, speed: float, forecast: float) -> None:
        attempt = self._record["attempts"][-1]
        attempt["step_seconds"] = round(speed, 4)
        if forecast:
            attempt["forecast_step_seconds"] = forecast
            slower = speed > forecast * record.SLOWER
            attempt["slower_since"] = (attempt.get("slower_since") or now()) if slower else None

    def _notify(self, event: str, detail: str, *, once: bool = False) -> None:
        if event not in self._notified:
            self._notified.add(event)
            step = self._record.get("steps")
            self._notifications.send(event, detail, number="" if once else str(step or 0), step=step)
