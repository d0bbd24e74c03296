"""The judgement of a drill: each promise that is broken makes it fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher.products.drill.certificate import Observed, judge
from launcher.products.drill.local.faults import FAULTS

PERIOD = 10
FAULT = {fault.name: fault for fault in FAULTS}
NUMBERS = {step: (10.0 - step / 10, 1.0) for step in range(40)}
KILLED = Observed("succeeded", "", 14, 14, [0, 10], 21.34, {"ray": 20.8}, NUMBERS, ["failed", "ended"])
STOPPED = Observed("succeeded", "", 14, 15, [0, 15], 20.0, {}, NUMBERS, ["preempted", "ended"])
SILENT = Observed("succeeded", "", 14, 14, [0], None, {}, NUMBERS, [])


def test_a_run_that_keeps_the_promises_passes() -> None:
    outcome = judge(FAULT["worker-killed"], KILLED, NUMBERS, PERIOD)
    assert (outcome.steps_lost, outcome.seconds_to_next_step, outcome.identical) == (4, 21.3, True)
    assert outcome.as_json()["passed"]
    assert judge(FAULT["stopped"], STOPPED, NUMBERS, PERIOD).problems == []
    assert judge(FAULT["webhook-down"], SILENT, NUMBERS, PERIOD).problems == []


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
    ],
)
def test_a_broken_promise_fails(fault: str, seen: Observed, changes: dict[str, Any], problem: str) -> None:
    problems = judge(FAULT[fault], replace(seen, **changes), NUMBERS, PERIOD).problems
    assert any(sentence.startswith(problem) for sentence in problems), problems
