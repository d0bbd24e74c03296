"""The judgement of a drill: each promise that is broken makes it fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher import formatting
from launcher.products.drill.api import Certificate
from launcher.products.drill.certificate import Observed, judge
from launcher.products.drill.cli.drill import text_of
from launcher.products.drill.cluster import faults as cluster_faults
from launcher.products.drill.faults import Fault
from launcher.products.drill.local.faults import FAULTS

PERIOD = 10
FAULT: dict[str, Fault[Any]] = {fault.name: fault for fault in FAULTS}
FAULT |= {fault.name: fault for fault in cluster_faults.FAULTS if fault.name not in FAULT}
NUMBERS = {step: (10.0 - step / 10, 1.0) for step in range(40)}
KILLED = Observed("succeeded", "", 14, 14, [0, 10], 21.34, {"ray": 20.8}, NUMBERS, ["failed", "ended"])
STOPPED = Observed("succeeded", "", 14, 15, [0, 15], 20.0, {}, NUMBERS, ["preempted", "ended"])
APART = Observed("succeeded", "", 14, 14, [0], None, {}, NUMBERS, ["ended"])
SILENT = Observed("succeeded", "", 14, 14, [0], None, {}, NUMBERS, [])

SPENT = {
    "detection": 10.5,
    "workers": 12.5,
    "ray": 11.5,
    "imports": 21.5,
    "data": 12.5,
    "compile": 8.5,
    "training": 3.5,
}


def test_a_run_that_keeps_the_promises_passes() -> None:
    outcome = judge(FAULT["worker-killed"], KILLED, NUMBERS, PERIOD)
    assert (outcome.steps_lost, outcome.seconds_to_next_step, outcome.identical) == (4, 21.3, True)
    assert outcome.as_json()["passed"]
    assert judge(FAULT["stopped"], STOPPED, NUMBERS, PERIOD).problems == []
    assert judge(FAULT["webhook-down"], SILENT, NUMBERS, PERIOD).problems == []
    assert judge(FAULT["api-server-gone"], APART, NUMBERS, PERIOD).problems == []


@pytest.mark.parametrize(
    ("fault", "replaced", "in_place", "problems"),
    [
        ("process-killed", (), True, []),
        ("process-killed", ["The pod run-0"], False, ["The pod run-0 started again, although only a process of it"]),
        ("pod-killed", ["The pod run-0"], False, []),
        ("process-killed", None, None, []),
    ],
)
def test_what_started_again(fault: str, replaced: list[str] | None, in_place: bool | None, problems: list[str]) -> None:
    outcome = judge(FAULT[fault], replace(KILLED, replaced=replaced), NUMBERS, PERIOD)
    assert outcome.as_json()["in_place"] is in_place
    assert [problem.partition(" was killed")[0] for problem in outcome.problems] == problems


@pytest.mark.parametrize(
    ("fault", "seen", "changes", "problem"),
    [
        ("worker-killed", KILLED, {"state": "failed", "reason": "No restart."}, "The run ended as failed: No restart."),
        ("worker-killed", KILLED, {"numbers": {**NUMBERS, 17: (8.3, 1.0000001)}}, "The numbers of 1 steps differ"),
        ("worker-killed", KILLED, {"numbers": {**NUMBERS, 40: (6.0, 1.0)}}, "The numbers of 1 steps differ"),
        ("worker-killed", KILLED, {"numbers": {k: v for k, v in NUMBERS.items() if k != 12}}, "1 steps have no line"),
        ("worker-killed", KILLED, {"starts": [0, 0]}, "14 steps were lost; at most 10 may be."),
        ("worker-killed", KILLED, {"starts": [0]}, "The fault had no effect"),
        ("worker-killed", KILLED, {"seconds": None}, "No step was finished after the fault."),
        ("worker-killed", KILLED, {"notified": ["ended"]}, "The webhook received no notification of the event failed."),
        ("stopped", STOPPED, {"starts": [0, 10]}, "5 steps were lost; at most 0 may be."),
        ("stopped", STOPPED, {"notified": ["ended"]}, "The webhook received no notification of the event preempted."),
        ("webhook-down", SILENT, {"starts": [0, 10]}, "The training started again, although only a notification"),
        ("api-server-gone", APART, {"starts": [0, 10]}, "The training started again, although it does not need what"),
        ("api-server-gone", APART, {"broken": ["The command ended."]}, "The command ended."),
        ("worker-killed", KILLED, {"stuck": "The run did not end.", "state": "running"}, "The run did not end."),
    ],
)
def test_a_broken_promise_fails(fault: str, seen: Observed, changes: dict[str, Any], problem: str) -> None:
    problems = judge(FAULT[fault], replace(seen, **changes), NUMBERS, PERIOD).problems
    assert any(sentence.startswith(problem) for sentence in problems), problems


def test_what_a_place_cannot_show_is_not_a_problem() -> None:
    """In a cluster, the last lines of a killed pod are lost with it; and on chips there is no webhook."""
    numbers = {step: row for step, row in NUMBERS.items() if step not in (14, 15)}
    seen = replace(STOPPED, starts=[0, 16], before=14, numbers=numbers, unseen=frozenset({14, 15}), notified=None)
    assert judge(FAULT["stopped"], seen, NUMBERS, PERIOD).problems == []
    assert judge(FAULT["stopped"], replace(seen, unseen=frozenset()), NUMBERS, PERIOD).problems == [
        "2 steps have no line in metrics.jsonl, the first is step 14."
    ]


def test_the_tables_fit_into_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [judge(fault, replace(KILLED, spent=SPENT), NUMBERS, PERIOD) for fault in FAULTS]
    certificate = Certificate(
        "2026-11-28T09:00:00+00:00", "here", 40, PERIOD, outcomes, {"evicted": "No right."}, NUMBERS
    )
    for columns in (80, 100):
        monkeypatch.setattr(formatting, "terminal_columns", lambda columns=columns: columns)
        lines = text_of(certificate).splitlines()
        assert max(map(len, lines)) <= columns
        assert lines[0].split() == ["FAULT", "STEP", "LOST", "NEXT", "STEP", "LOSSES", "NOTIFIED", "RESULT"]
        assert lines[1].split() == ["worker-killed", "14", "4", "21.3", "s", "identical", "failed,", "ended", "passed"]
        assert "evicted was left out: No right." in lines
