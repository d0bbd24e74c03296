"""The trainer's output for other programs: files, markers in its log, events, and an exit code.

trainer/metrics.py writes what this module reads; tests/unit/test_trainer_output.py compares the two. It imports only
the standard library and json_object, because the supervisor of a local run uses it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from launcher.json_object import json_object

METRICS_FILE, EVENTS_FILE = "metrics.jsonl", "events.jsonl"
EARLIER_CONFIGS_FILE = "earlier-configs.jsonl"
"""The configs of a run that `--continue` replaced, each with the time `until` which it applied."""
METRICS_PREFIX, EVENT_PREFIX = "SLIPWAY_METRICS ", "SLIPWAY_EVENT "
"""The text before a line of each file in the log. Ray may put its own prefix before it."""
# Ray puts the name of the worker in front of the line.
_FOR_PROGRAMS = re.compile(rf"(?:\([^)]*\) )?(?:{METRICS_PREFIX}|{EVENT_PREFIX})\{{")
EVALUATIONS_FILE = "evaluations.jsonl"
"""The results of a run's checkpoints on tasks, a line for each (trainer/evaluate.py)."""
TEXT_PREFIX, GENERATED_PREFIX = "SLIPWAY_TEXT ", "SLIPWAY_GENERATED "
EVALUATION_PREFIX, EVALUATION_PROGRESS_PREFIX = "SLIPWAY_EVALUATION ", "SLIPWAY_EVALUATION_PROGRESS "
"""The text before a line of trainer.generate (a piece of text, the numbers) and of trainer.evaluate in its output."""
SERVING_PREFIX = "SLIPWAY_SERVING "
"""The text before the line of trainer.serve that it prints when the model answers."""
TRY_AGAIN = 75
"""The exit code of a trainer that could not start Ray because the machine is busy."""

PHASES: Mapping[str, tuple[str, str]] = {
    "ray": ("Ray", "starting Ray"),
    "imports": ("imports", "importing JAX and MaxText"),
    "data": ("data", "loading the text and the model"),
    "compile": ("compile", "compiling the model"),
    "training": ("training", ""),
    "evaluation": ("evaluation", "evaluating the held-out text"),
    "checkpoint": ("checkpoint", "writing a checkpoint"),
}
"""The phases of a run as the trainer names them: each in one word, and what the run does in it."""
_OF_A_START = ("ray", "imports", "data", "compile")


class EventKind(StrEnum):
    """A kind of event, by its name in events.jsonl. trainer/metrics.py explains each."""

    PHASE = "phase"
    LOOP_STARTED = "loop_started"
    COMMAND_STARTED = "command_started"
    WORKER_FAILED = "worker_failed"
    DRIVER_FAILED = "driver_failed"
    PREEMPTED = "preempted"
    STOPPED = "stopped"
    ERROR = "error"
    SAMPLE = "sample"
    SLOW_HOST = "slow_host"
    CHECKPOINT_PERIOD = "checkpoint_period"

    @property
    def is_start(self) -> bool:
        """Whether the training, or run.command, starts."""
        return self in (EventKind.LOOP_STARTED, EventKind.COMMAND_STARTED)

    @property
    def is_failure(self) -> bool:
        return self in (EventKind.WORKER_FAILED, EventKind.DRIVER_FAILED, EventKind.ERROR)


@dataclass(frozen=True)
class Event:
    """An event. `time` is RFC 3339. A field that this kind of event does not have is "" or None.

    `step` is the step at which a loop starts, or the number of steps done when all hosts stopped. `steps` is the number
    that the run takes. A sample has the model's answer (`message`) to a prompt after `step` steps. `host` is the index
    of a slow host, and `node` its Kubernetes node.
    """

    kind: EventKind
    time: str = ""
    message: str = ""
    step: int | None = None
    steps: int | None = None
    devices: int | None = None
    hosts: int | None = None
    restarts_left: int | None = None
    phase: str = ""
    prompt: str = ""
    host: int | None = None
    node: str = ""


@dataclass(frozen=True)
class TrainerState:
    """The content of the events so far.

    `loops` is the number of times that the training, or the command, started, `restarts` the number of restarts after a
    failure. A preempted host is not a failure: `preemptions` counts those, and `stops` the cancellations. `failing` is
    True after a failure or a preemption until the next start, and `failure` is its message. `error` is the sentence
    that the trainer ended with. `phase` is the current phase and `since` its time; `start` has the seconds of the
    earlier phases of the last start.
    """

    loops: int = 0
    restarts: int = 0
    preemptions: int = 0
    stops: int = 0
    failing: bool = False
    failure: str = ""
    error: str = ""
    steps: int | None = None
    devices: int | None = None
    phase: str = ""
    since: str = ""
    start: tuple[tuple[str, float], ...] = ()

    @property
    def doing(self) -> str:
        """The activity of the run, such as "compiling the model (Ray 8 s, imports 21 s)"; "" while it trains."""
        if self.phase not in PHASES:
            return ""
        words = PHASES[self.phase][1]
        if self.phase not in _OF_A_START or not self.start:
            return words
        return f"{words} ({', '.join(f'{PHASES[phase][0]} {seconds:.0f} s' for phase, seconds in self.start)})"

    def after(self, event: Event) -> TrainerState:
        """Return the state after one more event."""
        if event.kind.is_start:
            loops = self.loops + 1
            return replace(
                self,
                loops=loops,
                restarts=max(self.restarts, loops - 1 - self.preemptions - self.stops),
                failing=False,
                failure="",
                error="",
                steps=event.steps or self.steps,
                devices=event.devices or self.devices,
            )
        if event.kind is EventKind.PHASE:
            return self._in_phase(event)
        if event.kind is EventKind.PREEMPTED:
            # Without Ray, each host reports it.
            more = 0 if self.failing else 1
            return replace(self, preemptions=self.preemptions + more, failing=True, failure=event.message)
        if event.kind is EventKind.STOPPED:
            return replace(self, stops=self.stops + (self.loops > 0), error=event.message)
        if event.kind is EventKind.ERROR:
            return replace(self, error=event.message)
        return replace(self, failing=True, failure=event.message) if event.kind.is_failure else self

    def _in_phase(self, event: Event) -> TrainerState:
        order = [*_OF_A_START, "training"]
        now, then = (order.index(phase) if phase in order else len(order) for phase in (self.phase, event.phase))
        start = self.start
        if then < len(_OF_A_START) and then <= now:  # the first phase, or another start
            start = ()
        elif now < len(_OF_A_START):
            start = (*start, (self.phase, _seconds_between(self.since, event.time)))
        return replace(self, phase=event.phase, since=event.time, start=start)


def _seconds_between(start: str, end: str) -> float:
    try:
        return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def state_after(events: Iterable[Event]) -> TrainerState:
    """Return the state after these events."""
    return functools.reduce(TrainerState.after, events, TrainerState())


def event_of(entry: Mapping[str, Any]) -> Event | None:
    """Return the event that a line's JSON object describes; None for an unknown kind, of a later version."""
    kind = str(entry.get("event"))
    if kind not in EventKind:
        return None
    return Event(
        EventKind(kind),
        time=str(entry.get("time") or ""),
        message=str(entry.get("message") or ""),
        step=count(entry.get("step"), least=0),
        steps=count(entry.get("steps")),
        devices=count(entry.get("devices")),
        hosts=count(entry.get("hosts")),
        restarts_left=count(entry.get("restarts_left"), least=0),
        phase=str(entry.get("phase") or ""),
        prompt=str(entry.get("prompt") or ""),
        host=count(entry.get("host"), least=0),
        node=str(entry.get("node") or ""),
    )


def events_of(entries: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Return the events that the lines of events.jsonl describe."""
    return [event for entry in entries if (event := event_of(entry)) is not None]


def is_for_programs(line: str) -> bool:
    """Return whether a line of a log is one of metrics.jsonl or events.jsonl, which people can read elsewhere in it."""
    return bool(_FOR_PROGRAMS.match(line))


def metrics_in_log(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the lines of metrics.jsonl that a log contains."""
    return _after(METRICS_PREFIX, lines)


def events_in_log(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events that a log contains."""
    return iter(events_of(_after(EVENT_PREFIX, lines)))


def _after(prefix: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        _, separator, text = line.partition(prefix)
        entry = json_object(text) if separator else None
        if entry is not None:
            yield entry


def count(value: Any, *, least: int = 1) -> int | None:
    """Return a whole number from `least` to 2**53, which a float represents exactly; None for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value <= 2**53 else None
