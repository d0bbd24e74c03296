"""The certificate of a drill: what each fault cost, and whether that is what Slipway promises. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from launcher.products.drill.faults import Fault


@dataclass(frozen=True)
class Observed:
    """The observations of a run with a fault. `numbers` and `steps` as in DrillRun.

    `at_step` is the number of steps that were finished at the fault, `before` those until the training stopped, and
    `starts` the step of each start of the training. `seconds` is the time from the fault to the first step after
    `before`; None if there was none. `spent` are the seconds of it in each phase. `notified` is None if the place has
    no webhook. `stuck` is a sentence about a run without progress, and `unseen` are the steps whose lines were lost.
    `replaced` are the parts of DrillRun.stays that started again with the training; None if it did not start again, or
    ended before they were read. `broken` are the sentences of Fault.check.
    """

    state: str
    reason: str
    at_step: int
    before: int
    starts: Sequence[int]
    seconds: float | None
    spent: Mapping[str, float]
    numbers: Mapping[int, tuple[Any, ...]]
    notified: Sequence[str] | None
    stuck: str = ""
    unseen: frozenset[int] = frozenset()
    replaced: Sequence[str] | None = None
    broken: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    """The row of a fault. `problems` are sentences about promises that were not kept; none is a pass.

    `in_place`: only processes started again, in the same pods or below the same process; None if that is not known.
    """

    fault: str
    about: str
    at_step: int
    steps_lost: int
    seconds_to_next_step: float | None
    seconds_by_phase: Mapping[str, float]
    identical: bool
    in_place: bool | None
    notified: Sequence[str] | None
    problems: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return {**asdict(self), "passed": not self.problems}


def judge(fault: Fault[Any], seen: Observed, expected: Mapping[int, tuple[Any, ...]], period: int) -> Outcome:
    """Compare a run with the undisturbed one, whose numbers are `expected`. `period` is the steps of a checkpoint."""
    restarts = seen.starts[1:]
    lost = max(0, seen.before - restarts[0]) if restarts else 0
    problems = []
    if seen.stuck:
        problems.append(seen.stuck)
    elif seen.state != "succeeded":
        problems.append(f"The run ended as {seen.state}: {seen.reason or 'without a reason'}")
    missing = sorted(expected.keys() - seen.numbers.keys() - seen.unseen)
    different = sorted(step for step, row in seen.numbers.items() if expected.get(step) != row)
    if missing:
        problems.append(f"{len(missing)} steps have no line in metrics.jsonl, the first is step {missing[0]}.")
    if different:
        problems.append(f"The numbers of {len(different)} steps differ, the first is step {different[0]}.")
    most = 0 if fault.free else period * fault.periods
    if lost > most:
        problems.append(f"{lost} steps were lost; at most {most} may be.")
    if fault.silent or fault.apart:
        if restarts:
            why = "only a notification failed" if fault.silent else "it does not need what was broken"
            problems.append(f"The training started again, although {why}.")
    elif not restarts:
        problems.append("The fault had no effect: the training did not start again.")
    elif seen.seconds is None:
        problems.append("No step was finished after the fault.")
    if fault.in_place:
        problems += [f"{name} started again, although only a process of it was killed." for name in seen.replaced or ()]
    for event in fault.notified:
        if seen.notified is not None and event not in seen.notified:
            problems.append(f"The webhook received no notification of the event {event}.")
    problems += seen.broken
    identical = not missing and not different
    seconds = None if seen.seconds is None else round(seen.seconds, 1)
    notified = None if seen.notified is None else list(dict.fromkeys(seen.notified))
    in_place = None if seen.replaced is None else not seen.replaced
    return Outcome(
        fault.name, fault.about, seen.at_step, lost, seconds, dict(seen.spent), identical, in_place, notified, problems
    )
