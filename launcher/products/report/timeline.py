"""When a run waited, had chips, trained and lost its chips: from its supervisor or Kueue, and from its trainer.

Two sources overlap. The supervisor or Kueue starts and stops the run and reports when it had chips (`ChipsHeld`). The
trainer's events report what it did meanwhile. Neither source refers to the other, and their clocks may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.backends import run_config
from launcher.products.report.metrics import time_of
from launcher.products.report.model import EarlierConfig, Mark, Phase, Span
from launcher.trainer_output import Event, EventKind, state_after

_WORDS = {
    EventKind.LOOP_STARTED: "training begins",
    EventKind.COMMAND_STARTED: "command begins",
    EventKind.WORKER_FAILED: "worker failed",
    EventKind.DRIVER_FAILED: "driver failed",
    EventKind.PREEMPTED: "stopped",
    EventKind.STOPPED: "stopped",
    EventKind.ERROR: "error",
    EventKind.SLOW_HOST: "slow host",
    EventKind.CHECKPOINT_PERIOD: "checkpoint period",
}


@dataclass(frozen=True)
class ChipsHeld:
    """A time in which the run had its chips. `after` is the phase that follows, until the next such time or the end."""

    start: float
    end: float
    after: Phase = Phase.STOPPED


@dataclass(frozen=True)
class PhaseChange:
    """The run is in `phase` from `at` on, while it has chips."""

    at: float
    phase: Phase


def spans(
    submitted: float | None,
    held: Sequence[ChipsHeld],
    changes: Iterable[PhaseChange],
    end: float,
    *,
    resubmitted: Sequence[float] = (),
) -> list[Span]:
    """Return the phases of the run from its submission to `end`, in order and without gaps.

    `resubmitted` are the later submissions of a run that had stopped. It waits from each of them on. A phase that would
    have a negative length because of a clock jump has no length.
    """
    inner = sorted(changes, key=lambda change: change.at)
    spans_of_run: list[Span] = []
    begin = submitted
    after = Phase.QUEUED
    for hold in sorted(held, key=lambda one: one.start):
        start = hold.start if begin is None else max(hold.start, begin)
        if begin is not None:
            spans_of_run += _apart(after, begin, start, resubmitted)
        phase, at = Phase.STARTING, start
        for change in inner:
            if start <= change.at < hold.end:
                spans_of_run.append(Span(phase, at, change.at))
                phase, at = change.phase, change.at
        spans_of_run.append(Span(phase, at, hold.end))
        begin, after = max(start, hold.end), hold.after
    if begin is not None and after is not Phase.STOPPED:
        spans_of_run += _apart(after, begin, end, resubmitted)
    return _joined(spans_of_run)


def _apart(phase: Phase, begin: float, end: float, resubmitted: Sequence[float]) -> list[Span]:
    """Return the time without chips. A stopped run stays stopped until it is resubmitted, then it is queued."""
    again = next((at for at in sorted(resubmitted) if begin <= at <= end), None)
    if phase is not Phase.STOPPED or again is None:
        return [Span(phase, begin, end)]
    return [Span(Phase.STOPPED, begin, again), Span(Phase.QUEUED, again, end)]


def _joined(spans_of_run: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in spans_of_run:
        if span.end <= span.start:
            continue
        if joined and joined[-1].phase is span.phase and joined[-1].end == span.start:
            joined[-1] = Span(span.phase, joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def changes_of(events: Sequence[Event], times: Sequence[float]) -> list[PhaseChange]:
    """Return the phases by the trainer's events: training after a loop starts, restarting after a failure.

    A trainer that is killed writes no event for it. Its training then ends at the time of the last step before the next
    loop starts (`times`, of all of metrics.jsonl).
    """
    changes: list[PhaseChange] = []
    training_since: float | None = None
    for event in events:
        at = time_of(event.time)
        if at is None:
            continue
        if event.kind.is_start:
            if training_since is not None:
                last = max((time for time in times if training_since < time < at), default=training_since)
                changes.append(PhaseChange(last, Phase.RESTARTING))
            changes.append(PhaseChange(at, Phase.TRAINING))
            training_since = at
        elif event.kind.is_failure:
            changes.append(PhaseChange(at, Phase.RESTARTING))
            training_since = None
    return changes


def marks_of(events: Iterable[Event]) -> list[Mark]:
    """Return the trainer's events as marks."""
    marks = []
    for event in events:
        at = time_of(event.time)
        if at is None or event.kind not in _WORDS:
            continue
        text = event.message
        if event.kind is EventKind.LOOP_STARTED:
            text = f"after {event.step} of {event.steps} steps, on {event.devices} device{'s' * (event.devices != 1)}"
        marks.append(Mark(at, _WORDS[event.kind], text, bad=event.kind.is_failure))
    return marks


def samples_of(events: Iterable[Event]) -> list[Event]:
    """Return the answers to prompts, by step; a repeated step counts once."""
    found = {(event.step or 0, event.prompt): event for event in events if event.kind is EventKind.SAMPLE}
    return [found[key] for key in sorted(found, key=lambda key: key[0])]


def begins_of(events: Iterable[Event]) -> list[int]:
    """Return the steps at which training started: the first, and those after each restart."""
    return [event.step for event in events if event.kind is EventKind.LOOP_STARTED and event.step is not None]


def earlier_configs(entries: Iterable[Mapping[str, Any]], events: Sequence[Event]) -> list[EarlierConfig]:
    """Return the configs of earlier-configs.jsonl with which the run trained, each with the step that it trained to."""
    starts = [(time_of(event.time) or 0.0, event.step) for event in events if event.kind.is_start]
    configs, since = [], 0.0
    for entry in entries:
        until, config = time_of(entry.get("until")), entry.get("config")
        if until is None or not isinstance(config, Mapping) or run_config.wrong(config):
            continue  # a damaged line must not prevent the report
        if any(since <= at < until for at, _ in starts):
            configs.append(EarlierConfig(config, next((step for at, step in starts if at >= until), None)))
        since = until
    return configs


def devices_of(events: Iterable[Event]) -> int | None:
    """Return the number of devices that the last start reported."""
    return state_after(events).devices


def steps_of(events: Iterable[Event]) -> int | None:
    """Return the number of steps of the run that the last start reported."""
    return state_after(events).steps
