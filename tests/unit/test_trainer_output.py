"""The trainer's output: what the trainer writes is what the launcher reads."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from launcher import trainer_output
from launcher.trainer_output import EVENTS_FILE, Event, EventKind, event_of, events_in_log, events_of, state_after
from trainer import metrics

VALUES: dict[str, Any] = {"message": "m", "step": 3, "steps": 8, "devices": 4, "hosts": 2, "restarts_left": 0}
VALUES |= {"phase": "compile", "host": 3, "node": "n", "prompt": "p"}


def test_both_know_the_same_events_and_fields() -> None:
    assert set(metrics.EVENTS) == set(EventKind)
    fields = {field.name for field in dataclasses.fields(Event)} - {"kind", "time"}
    assert {name for kind in metrics.EVENTS.values() for name in kind.fields} == fields


def test_both_know_the_same_phases() -> None:
    assert tuple(trainer_output.PHASES) == metrics.PHASES


def test_both_know_the_same_markers() -> None:
    assert (metrics.PREFIX, metrics.EVENT_PREFIX) == (trainer_output.METRICS_PREFIX, trainer_output.EVENT_PREFIX)
    assert metrics.TRY_AGAIN == trainer_output.TRY_AGAIN


@pytest.mark.parametrize("kind", EventKind)
def test_an_event_is_read_as_it_was_written(
    kind: EventKind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {name: VALUES[name] for name in metrics.EVENTS[kind].fields}
    metrics.write_event(tmp_path, kind, **fields)
    (written,) = events_of(map(json.loads, (tmp_path / EVENTS_FILE).read_text().splitlines()))
    assert written.kind is kind and written.time
    assert {name: getattr(written, name) for name in fields} == fields
    assert list(events_in_log(capsys.readouterr().out.splitlines())) == [written]


def test_an_event_with_other_fields_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="The fields of the event error are"):
        metrics.write_event(tmp_path, "error", message="m", steps=3)
    assert not (tmp_path / EVENTS_FILE).exists()


def test_an_event_of_a_later_version_is_skipped() -> None:
    assert event_of({"event": "promoted", "time": "t"}) is None
    assert event_of({}) is None


def test_a_value_of_the_wrong_type_is_not_taken() -> None:
    event = event_of({"event": "loop_started", "step": True, "steps": "8", "devices": -1})
    assert event == Event(EventKind.LOOP_STARTED)


def test_a_preemption_is_not_a_restart() -> None:
    start, failed = Event(EventKind.LOOP_STARTED, steps=8, devices=4), Event(EventKind.WORKER_FAILED, message="gone")
    preempted = Event(EventKind.PREEMPTED, message="drained", step=3)
    state = state_after([start, failed])
    assert (state.loops, state.restarts, state.failing, state.failure) == (1, 0, True, "gone")
    state = state_after([start, failed, start, preempted, start])
    assert (state.loops, state.restarts, state.preemptions, state.failing) == (3, 1, 1, False)
    assert (state.steps, state.devices) == (8, 4)
    # A run on this machine is cancelled and submitted again.
    stopped = Event(EventKind.STOPPED, message="stopped after 3 steps", step=3)
    state = state_after([stopped, start, stopped, start, failed, start])
    assert (state.loops, state.restarts, state.preemptions) == (3, 1, 0)
    assert state_after([start, stopped]).error == "stopped after 3 steps"


def phase(name: str, second: int) -> Event:
    return Event(EventKind.PHASE, time=f"2026-11-01T10:00:{second:02}.000Z", phase=name)


def test_a_start_shows_its_phase_and_the_times_of_those_before() -> None:
    events = [phase("ray", 0)]
    assert state_after(events).doing == "starting Ray"
    events += [phase("imports", 8), phase("data", 29), phase("compile", 30)]
    assert state_after(events).doing == "compiling the model (Ray 8 s, imports 21 s, data 1 s)"
    events += [Event(EventKind.LOOP_STARTED), phase("training", 40)]
    assert state_after(events).doing == ""
    assert state_after([*events, phase("evaluation", 41)]).doing == "evaluating the held-out text"
    assert state_after([*events, phase("checkpoint", 41)]).doing == "writing a checkpoint"
    assert state_after([*events, phase("imports", 50), phase("data", 55)]).doing == (
        "loading the text and the model (imports 5 s)"
    )


def test_a_phase_of_a_later_version_is_nothing() -> None:
    assert state_after([phase("fusion", 1)]).doing == ""
    assert state_after([Event(EventKind.PHASE, phase="compile"), phase("data", 3)]).doing != ""
