"""Delays that explain a recording: with them, the simulation decides from the first to the last event what Kueue did.

A scenario that differs from its recording shows either a wrong rule or the delays of the machine, which no simulation
knows: how long a cycle took, when an arrival or a release reached the scheduler, which of two Workloads of the same
second had the smaller UID. To distinguish them, a search changes these delays and nothing else. It starts at the first
difference, changes some delays before it, keeps what moves the difference to a later time, and repeats this. No delay
changes which flavors or which preemptions a rule selects in a state; the proof page shows which wrong rules this finds.

`delays.json` has the delays that were found, without those that are not needed.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.products.planner.scheduler import simulation
from launcher.products.planner.scheduler.flavors import Assignment
from launcher.products.planner.scheduler.model import Event, Eviction, Outcome, Scenario
from launcher.products.planner.scheduler.preemption import Target
from launcher.products.planner.scheduler.state import JobState
from launcher.products.planner.simulation.event_lines import as_line
from launcher.products.planner.simulation.scenario_file import ScenarioLine
from tests.products.planner.simulate_proof.agreement import CLOSE, compare, first_difference

FILE = Path(__file__).with_name("delays.json")

Delayed = tuple[str, str, int]
"""What is delayed: a kind of RANGES, the name of a run or of a tree of cohorts, and how many there were before."""

Delays = Mapping[Delayed, float]
"""Seconds, by what is delayed. A negative number is earlier than the simulation assumes."""

RANGES = {
    "arrival": (-0.1, 1.5),  # when the scheduler sees a new run
    "age": (-1.0, 1.0),  # the order of runs that were created in the same second
    "admitted age": (-1.0, 1.0),  # the order of runs that were admitted in the same second
    "end": (-1.0, 0.5),  # when the scheduler sees the end of a run
    "release": (-1.0, 0.5),  # when the scheduler sees the release of an evicted run
    "retry": (-0.3, 2.5),  # when what was set aside is tried again
    "cycle": (0.0, 3.0),  # the start of a cycle of the scheduler
    "decision": (-0.07, 3.0),  # when an admission or an eviction is in the API server
}
"""The kinds of delays, with the range in seconds that the search tries."""

_KINDS = {
    simulation._CREATED: "arrival",
    simulation._FINISHED: "end",
    simulation._RELEASED: "release",
    simulation._TRY_AGAIN: "retry",
    simulation._CYCLE: "cycle",
}
_LONGEST_STALL = 7.5  # seconds; between the end of r7 and the next start in sim-11-214 are 6.8 s without another event
_TRIES_BEFORE_BACK = 300


class DelayedSimulation(simulation._Simulation):
    """The simulation with other delays. `seen` has the time of each thing that can be delayed.

    `withdrawn` has the seconds after which Kueue took back an admission, by run and number of the admission.
    """

    def __init__(self, scenario: Scenario, delays: Delays, withdrawn: Mapping[tuple[str, int], float]) -> None:
        self._delays = delays
        self._withdrawn = withdrawn
        self._admissions: Counter[str] = Counter()
        self._numbers: Counter[tuple[str, str]] = Counter()
        self.seen: list[tuple[float, Delayed]] = []
        super().__init__(scenario)

    def _delay(self, kind: str, name: str, at: float) -> float:
        key = (kind, name, self._numbers[kind, name])
        self._numbers[kind, name] += 1
        self.seen.append((at, key))
        return self._delays.get(key, 0.0)

    def _plan(self, at: float, kind: int, name: str, value: object) -> int:
        if kind == simulation._CREATED and isinstance(value, JobState):
            value.created += self._delay("age", name, at)
        if kind in _KINDS:
            at = max(self._now, at + self._delay(_KINDS[kind], name, at))
        return super()._plan(at, kind, name, value)

    def _admit(self, workload: JobState, assignment: Assignment) -> None:
        name = workload.name
        at = max(self._now, self._now + self._latency + self._delay("decision", name, self._now))
        self._reserve(workload, tuple(assignment.flavors), at)
        self._record(Event(at, name, "admitted", workload.flavors))
        workload.reserved += self._delay("admitted age", name, at)
        number = self._admissions[name]
        self._admissions[name] += 1
        if (name, number) in self._withdrawn:
            del self._ends[name]
            after = at + self._withdrawn[name, number]
            self._releases[name] = super()._plan(after, simulation._RELEASED, name, workload)
            self._ends[name] = -1

    def _evict(self, target: Target, by: JobState) -> None:
        name = target.workload.name
        at = max(self._now, self._now + self._latency + self._delay("decision", name, self._now))
        self._stop(target.workload, Eviction(target.reason, by.name), at)


def withdrawn(recording: Mapping[str, Any]) -> dict[tuple[str, int], float]:
    """Return the admissions of a recording that Kueue took back without an eviction, and the seconds until then.

    This happens if Kueue admits a run again before the controller of its Job has finished the eviction before.
    """
    found: dict[tuple[str, int], float] = {}
    admitted: dict[str, tuple[int, float]] = {}
    stopping: set[str] = set()
    for at, run, what, _ in sorted(recording["events"], key=lambda event: float(event[0])):
        if what == "admitted":
            admitted[run] = admitted.get(run, (-1, 0.0))[0] + 1, at
            stopping.discard(run)
        elif what == "evicted":
            stopping.add(run)
        elif what == "released" and run not in stopping:
            number, start = admitted[run]
            found[run, number] = at - start
    return found


@dataclass(slots=True)
class Explanation:
    """The search for delays that explain a recording. `difference` is the first one that is left, or None."""

    line: ScenarioLine
    delays: dict[Delayed, float] = field(default_factory=dict)
    difference: tuple[float, str] | None = None
    tries: int = 0

    @property
    def holds(self) -> bool:
        """Whether the simulation with these delays agrees with the recording."""
        return self.difference is None and compare(self.line.raw, self.simulated(self.delays)).agrees

    def simulated(self, delays: Delays) -> dict[str, Any]:
        outcome = DelayedSimulation(self.line.scenario, delays, withdrawn(self.line.raw)).run(None)
        return as_line(self.line.id, self.line.scenario, outcome)

    def check(self) -> None:
        """Set the first difference with the current delays."""
        self.difference, _ = self._run(self.delays, None)

    def search(self, *, most: int, seed: int = 0) -> None:
        """Search for delays, with at most so many simulations."""
        rng = random.Random(seed)
        decisions = sorted(float(at) for at, _, what, _ in self.line.raw["events"] if what in ("admitted", "evicted"))
        self.difference, seen = self._run(self.delays, None)
        steps = [(self.delays, self.difference, seen)]
        failed = 0
        while self.difference is not None and self.tries < most:
            self.tries += 1
            at = self.difference[0]
            changed = self.delays | self._changes(rng, seen, at, decisions)
            difference, _ = self._run(changed, at + 7 * CLOSE)
            if difference is None or difference[0] > at + 1e-6:
                self.delays, failed = changed, 0
                self.difference, seen = self._run(changed, None)
                steps.append((self.delays, self.difference, seen))
            elif (failed := failed + 1) == _TRIES_BEFORE_BACK:  # an earlier step was wrong
                del steps[max(1, len(steps) - rng.randint(1, 6)) :]
                (self.delays, self.difference, seen), failed = steps[-1], 0
        if self.difference is None:
            self._remove_unneeded()

    def _run(self, delays: Delays, until: float | None) -> tuple[tuple[float, str] | None, list[tuple[float, Delayed]]]:
        run = DelayedSimulation(self.line.scenario, delays, withdrawn(self.line.raw))
        outcome: Outcome = run.run(until)
        ours = as_line(self.line.id, self.line.scenario, outcome)
        last = None if until is None else until - CLOSE
        return first_difference(self.line.raw, ours, last), run.seen

    def _changes(
        self, rng: random.Random, seen: Iterable[tuple[float, Delayed]], at: float, decisions: Sequence[float]
    ) -> dict[Delayed, float]:
        """Return other delays for a few things before a difference."""
        back = rng.choice((2, 5, 10))
        near = [(when, key) for when, key in seen if at - back <= when <= at + 0.5]
        found: dict[Delayed, float] = {}
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4)) if near else 0):
            when, key = rng.choice(near)
            seconds = rng.uniform(*RANGES[key[0]]) * rng.choice((0.1, 0.3, 1, 1))
            if key[0] in ("cycle", "retry") and rng.random() < 0.6:  # so that a cycle is just before a real decision
                first = bisect_right(decisions, when)
                following = decisions[first : first + 4]
                if not following:
                    continue
                seconds = rng.choice(following) - when - rng.uniform(0.0, 0.15)
                if not 0 < seconds < _LONGEST_STALL:
                    continue
            if rng.random() < 0.3:
                seconds += self.delays.get(key, 0.0)
            found[key] = round(seconds, 3)
        return found

    def _remove_unneeded(self) -> None:
        for key in sorted(self.delays, key=lambda each: abs(self.delays[each])):
            fewer = {each: seconds for each, seconds in self.delays.items() if each != key}
            if self._run(fewer, None)[0] is None:
                self.delays = fewer


def load() -> dict[str, dict[Delayed, float]]:
    """Return the delays that were found, by scenario."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        scenario: {(kind, name, number): seconds for kind, name, number, seconds in delays}
        for scenario, delays in found.items()
    }


def save(found: Mapping[str, Delays]) -> None:
    """Write the delays of scenarios, one scenario a line."""
    lines = [
        f"{json.dumps(scenario)}: {json.dumps([[*key, round(seconds, 3)] for key, seconds in sorted(delays.items())])}"
        for scenario, delays in sorted(found.items())
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
