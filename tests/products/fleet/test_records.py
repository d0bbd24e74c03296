"""Runs of records, and one run of a record and a Workload."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from launcher.products.fleet.api import _recorded
from launcher.products.fleet.model import Attempt, FleetRun, Wait
from launcher.products.fleet.recorded import contradiction, joined, of_record
from launcher.products.records import form

HOUR = 3600.0


def at(hours: float) -> str:
    return datetime.fromtimestamp(hours * HOUR, UTC).isoformat()


def record(**changes: Any) -> dict[str, Any]:
    """Return a record of a run that was submitted at 1 h, and had its chips from 2 to 3 h and from 5 to 9 h."""
    times = dict.fromkeys(("submitted", "queued", "admitted", "started", "first_step", "ended"))
    return {
        "version": form.VERSION,
        "uid": "u1",
        "name": "demo",
        "namespace": "research",
        "kind": "job-set",
        "team": "research",
        "user": "ada",
        "queue": "training",
        "state": "succeeded",
        "reason": "",
        "times": {**times, "submitted": at(1), "admitted": at(2), "ended": at(9)},
        "attempts": [],
        "restarts": 0,
        "preemptions": 1,
        "accelerator": "v5e",
        "topology": "2x4",
        "provisioning": "",
        "flavor": "v5e-2x4",
        "slices": 1,
        "chips": 8,
        "held": [{"from": at(2), "to": at(3)}, {"from": at(5), "to": at(9)}],
        "steps": 100,
        "steps_wanted": 100,
        "tokens": 1_000_000,
        "seconds": {"total": 7 * HOUR, "training": 4 * HOUR, "preemptions": 3 * HOUR, "data": 0.0},
        "goodput": 0.8,
        "cost": None,
        "config": "",
        "image": "",
        "folder": "gs://bucket/demo",
        "notified": [],
        "sources": ["cluster", "trainer"],
        "written": at(10),
    } | changes


def test_a_record_is_a_run_of_the_fleet() -> None:
    assert form.parse(json.dumps(record()).encode(), "demo.record.json")  # the test's record has the documented form
    run = of_record(record())
    assert run is not None
    assert run.attempts == [Attempt(2 * HOUR, 3 * HOUR, "Preempted"), Attempt(5 * HOUR, 9 * HOUR)]
    assert run.waits == [Wait(HOUR, 2 * HOUR), Wait(3 * HOUR, 5 * HOUR)]
    assert (run.user, run.chips, run.goodput) == ("ada", {"v5e-2x4": 8}, 0.8)
    assert run.losses == {"preemptions": 3 * HOUR}


def test_runs_without_chips_and_of_one_machine_are_not_of_the_fleet() -> None:
    assert of_record(record(chips=None)) is None
    assert of_record(record(kind="local")) is None


def live(**changes: Any) -> FleetRun:
    given: dict[str, Any] = {
        "uid": "u1",
        "name": "demo",
        "namespace": "research",
        "team": "research",
        "queue": "research",
        "state": "running",
        "created": HOUR,
        "chips": {"v5e-2x4": 8},
        "attempts": [Attempt(5 * HOUR, 9 * HOUR)],
    }
    return FleetRun(**{**given, **changes})


def test_a_record_and_a_workload_of_one_uid_are_one_run() -> None:
    recorded = of_record(record())
    assert recorded is not None
    # The API server knows only the sum of the earlier attempt, and the record its time.
    known = live(attempts=[Attempt(4 * HOUR, 5 * HOUR, "Preempted", placed=False), Attempt(5 * HOUR, 9.5 * HOUR)])
    (run,) = joined([known], [recorded])
    assert run.attempts == [Attempt(2 * HOUR, 3 * HOUR, "Preempted"), Attempt(5 * HOUR, 9.5 * HOUR)]
    assert (run.state, run.user, run.goodput) == ("running", "ada", 0.8)
    # Nothing is added to what the API server knows exactly.
    exact = live(attempts=[Attempt(2 * HOUR, 3 * HOUR, "Preempted"), Attempt(5 * HOUR, 9.5 * HOUR)])
    assert joined([exact], [recorded])[0].attempts == exact.attempts


def test_a_damaged_record_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.record.json").write_text(json.dumps(record()))
    (tmp_path / "copy.record.json").write_text(json.dumps(record(written=at(11))))
    (tmp_path / "other.record.json").write_text(json.dumps(record(uid="u2", namespace="product")))
    (tmp_path / "half.record.json").write_text('{"version": 1, "uid"')
    runs, problems = _recorded([str(tmp_path)], "")
    assert [run.uid for run in runs] == ["u1", "u2"]
    (problem,) = problems
    assert "half.record.json is damaged" in problem
    assert [run.uid for run in _recorded([str(tmp_path)], "research")[0]] == ["u1"]


@pytest.mark.parametrize(
    ("changes", "now"),
    [
        ({"times": {**record()["times"], "submitted": at(4)}}, 10.0),
        ({"held": [{"from": at(3), "to": at(2)}]}, 10.0),
        ({"held": [{"from": at(2), "to": at(6)}, {"from": at(5), "to": at(9)}]}, 10.0),
        ({}, 8.0),
    ],
    ids=["held before it was submitted", "ended before it began", "two attempts at once", "in the future"],
)
def test_times_of_a_wrong_clock_are_a_mark(changes: dict[str, Any], now: float) -> None:
    run = of_record(record(**changes))
    assert run is not None
    assert contradiction(run, now * HOUR).startswith("The record of research/demo has times that are not in order")
    plain = of_record(record())
    assert plain is not None
    assert contradiction(plain, 9 * HOUR - 30) == ""  # half a minute is usual
