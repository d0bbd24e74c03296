"""Compare what happens next: the simulation starts again and again from the recorded state of a moment.

A run that starts 50 ms later than recorded can change everything after it. To compare the rules and not the noise, each
window starts with the runs that really held quota at that moment, and with those that really waited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from launcher.products.planner.scheduler.model import Holding, Job, Scenario
from launcher.products.planner.scheduler.simulation import simulate
from launcher.products.planner.simulation.event_lines import as_line
from tests.products.planner.simulate_proof.agreement import CLOSE

WINDOW = 10.0
"""The length of a window in seconds."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The recorded decisions in all windows of a scenario, and those that the simulation has too."""

    decisions: int
    found: int


@dataclass(slots=True)
class _State:
    """A run at a moment of the recording."""

    flavors: tuple[str, ...] = ()
    admitted: float = 0.0
    evictions: int = 0
    stopping: bool = False
    ended: bool = False


def windows(raw: Mapping[str, Any], scenario: Scenario) -> Windows:
    """Compare the decisions of each window. A window in which a run is being stopped at the start is moved."""
    decisions = found = 0
    events = sorted(raw["events"], key=lambda event: float(event[0]))
    start, end = 0.0, float(events[-1][0])
    while start < end:
        states = _states(events, start)
        if any(state.stopping for state in states.values()):
            start += 0.5
            continue
        jobs = [job for each in scenario.jobs if (job := _at(each, states.get(each.name), start)) is not None]
        outcome = simulate(replace(scenario, jobs=jobs), until=WINDOW + CLOSE)
        ours = _decisions(as_line("", scenario, outcome)["events"], 0.0, -1.0, WINDOW + CLOSE)
        for key, times in _decisions(events, start, 0.0, WINDOW).items():
            decisions += len(times)
            left = list(ours.get(key, []))
            for at in times:
                near = min(left, key=lambda other: abs(other - at), default=None)
                if near is not None and abs(near - at) <= CLOSE:
                    left.remove(near)
                    found += 1
        start += WINDOW
    return Windows(decisions, found)


def _states(events: list[Any], moment: float) -> dict[str, _State]:
    states: dict[str, _State] = {}
    for at, run, what, detail in events:
        if at >= moment:
            break
        state = states.setdefault(run, _State())
        if what == "admitted":
            state.flavors, state.admitted = tuple(detail), at
        elif what == "evicted":
            state.stopping, state.evictions = True, state.evictions + 1
        elif what == "released":
            state.flavors, state.stopping = (), False
        elif what == "finished":
            state.ended, state.stopping = True, False
    return states


def _at(job: Job, state: _State | None, moment: float) -> Job | None:
    """Return a run as it is at a moment, None if it has ended. Times are from that moment."""
    job = replace(job, created=job.created - moment)
    if state is None:
        return job
    if state.ended:
        return None
    job = replace(
        job, takes_before=job.takes_before[state.evictions :], frees=job.frees[state.evictions :] or job.frees[-1:]
    )
    if not state.flavors:
        return job
    resource = next(iter(job.pod_sets[0].amounts))
    return replace(job, holding=Holding(({resource: state.flavors[0]},), state.admitted - moment))


def _decisions(events: list[Any], start: float, first: float, last: float) -> dict[tuple[str, str, str], list[float]]:
    """Return the times of each admission and eviction in a window, from its start."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for at, run, what, detail in events:
        if what in ("admitted", "evicted") and first <= at - start < last:
            key = run, what, ",".join(detail) if what == "admitted" else ""
            found.setdefault(key, []).append(at - start)
    return found
