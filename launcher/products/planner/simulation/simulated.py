"""Run a simulation, and calculate its figures: waits by team, use of flavors, preemptions, lost work and cost."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from launcher.products.planner.scheduler.model import Attempt, Job, KueueSettings, Outage, Outcome, Scenario
from launcher.products.planner.scheduler.simulation import simulate
from launcher.products.planner.simulation.jobs import chips_of, without_flavor
from launcher.products.planner.simulation.platform import Platform

LIKELY_WAIT = 0.5
LONG_WAIT = 0.95
"""The quantiles of the waits that the figures have: the median and the 95th percentile."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What happens to a run. Times are seconds from the start; None if it does not start or end.

    `starts` is its first admission. `never` is the reason why it does not end, or "";
    `blocked_by` is the run ahead of it in a StrictFIFO queue if that is the reason.
    """

    name: str
    team: str
    queue: str
    chips: int
    arrives: float
    starts: float | None
    ends: float | None
    flavors: tuple[str, ...]
    preemptions: int
    lost_chip_hours: float
    never: str
    blocked_by: str = ""

    @property
    def wait(self) -> float | None:
        return None if self.starts is None else max(0.0, self.starts - self.arrives)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "wait": self.wait}


@dataclass(frozen=True, slots=True)
class TeamFigures:
    """The waits of a team's runs until their first start, in seconds; None if no run starts.

    `never` is the number of runs that do not end.
    """

    runs: int
    never: int
    median_wait: float | None
    wait_95: float | None
    longest_wait: float | None
    preemptions: int
    lost_chip_hours: float
    chip_hours: float


@dataclass(frozen=True, slots=True)
class FlavorFigures:
    """The use of a flavor's chips. `utilisation` is the share of its quota, None without quota."""

    chips: int
    chip_hours: float
    utilisation: float | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a simulation. `usd` is the price of the chips that runs hold; `quota_usd` that of all quota.

    `unpriced` has the flavors with quota and without a known price, which neither includes. `ends` is the time of the
    last event.
    """

    teams: Mapping[str, TeamFigures]
    flavors: Mapping[str, FlavorFigures]
    runs: int
    never: int
    preemptions: int
    lost_chip_hours: float
    chip_hours: float
    usd: float
    quota_usd: float
    unpriced: Sequence[str]
    ends: float


@dataclass(frozen=True)
class Simulated:
    """A platform, jobs by name with their teams, and what happens to them."""

    platform: Platform
    jobs: Mapping[str, Job]
    teams: Mapping[str, str]
    outages: Sequence[Outage]
    outcome: Outcome
    runs: Sequence[RunResult] = field(default_factory=list)

    @property
    def ends(self) -> float:
        """The time of the last event."""
        return max((event.at for event in self.outcome.events), default=0.0)

    def as_json(self, until: float | None = None) -> dict[str, Any]:
        """Return the runs, and the figures until a time (default: the last event)."""
        return {"runs": [run.as_json() for run in self.runs], "figures": asdict(figures(self, until))}


def run_simulation(
    platform: Platform,
    jobs: Mapping[str, Job],
    teams: Mapping[str, str],
    *,
    outages: Sequence[Outage] = (),
    settings: KueueSettings | None = None,
    check: Callable[[], None] = lambda: None,
) -> Simulated:
    """Simulate the jobs until nothing happens any more. `teams` has the team of each job.

    `check` is called again and again; what it raises ends the simulation.
    """
    accepted, timed = _apply_outages(jobs, outages, platform)
    scenario = Scenario(
        platform.cluster_queues, platform.cohorts, list(accepted.values()), timed, settings or KueueSettings()
    )
    outcome = simulate(scenario, check=check)
    runs = [
        _result(job, teams[name], outcome)
        for name, job in sorted(jobs.items(), key=lambda item: (item[1].created, item[0]))
    ]
    return Simulated(platform, jobs, teams, outages, outcome, runs)


def _apply_outages(
    jobs: Mapping[str, Job], outages: Sequence[Outage], platform: Platform
) -> tuple[dict[str, Job], list[Outage]]:
    """Return the jobs and outages that the engine simulates.

    An outage without an end evicts the jobs of a flavor at its start, and no job accepts the flavor later: the engine
    has only outages that end.
    """
    changed, timed = dict(jobs), []
    for outage in outages:
        if math.isinf(outage.end):
            changed = without_flavor(changed, outage.flavor, platform)
            timed.append(replace(outage, end=outage.start))
        else:
            timed.append(outage)
    return changed, timed


def _result(job: Job, team: str, outcome: Outcome) -> RunResult:
    attempts = outcome.attempts.get(job.name, ())
    last = attempts[-1] if attempts else None
    finished = last is not None and last.eviction is None
    return RunResult(
        name=job.name,
        team=team,
        queue=job.queue,
        chips=chips_of(job),
        arrives=job.created,
        starts=attempts[0].admitted if attempts else None,
        ends=last.end if last is not None and finished else None,
        flavors=tuple(dict.fromkeys(name for each in (last.flavors if last else ()) for name in each.values())),
        preemptions=sum(attempt.eviction is not None for attempt in attempts),
        lost_chip_hours=lost_seconds(attempts) * chips_of(job) / 3600,
        never=outcome.never.get(job.name, ""),
        blocked_by=outcome.blocked_by.get(job.name, ""),
    )


def lost_seconds(attempts: Sequence[Attempt]) -> float:
    """Return the seconds with quota whose work is repeated, because the attempt was evicted."""
    lost, kept = 0.0, 0.0
    for attempt in attempts:
        if attempt.eviction is not None and attempt.end is not None:
            held = max(0.0, (attempt.released if attempt.released is not None else attempt.end) - attempt.admitted)
            lost += max(0.0, held - (attempt.kept - kept))
            kept = attempt.kept
    return lost


def figures(simulated: Simulated, until: float | None = None) -> Figures:
    """Return the figures of a simulation, from its start to `until` (default: its last event).

    Two simulations are compared until the same time; otherwise the use of a flavor and the cost of its quota would
    differ only because one of them ends later.
    """
    platform, outcome = simulated.platform, simulated.outcome
    ends = simulated.ends if until is None else until
    held: defaultdict[str, float] = defaultdict(float)  # chip-seconds by flavor
    held_by: defaultdict[str, float] = defaultdict(float)  # by run
    for name, attempts in outcome.attempts.items():
        for attempt in attempts:
            seconds = held_seconds(attempt, ends)
            for given, pod_set in zip(attempt.flavors, simulated.jobs[name].pod_sets, strict=True):
                for resource, flavor in given.items():
                    if "/" in resource:
                        amount = float(pod_set.amounts.get(resource, 0)) * seconds
                        held[flavor] += amount
                        held_by[name] += amount
    flavors = {
        flavor.name: _flavor(simulated, flavor.name, held[flavor.name] / 3600, ends)
        for flavor in platform.flavors.values()
        if flavor.has_chips
    }
    teams = {
        team: _team([run for run in simulated.runs if run.team == team], held_by)
        for team in sorted({run.team for run in simulated.runs})
    }
    priced = [name for name in flavors if platform.flavors[name].usd is not None]
    return Figures(
        teams=teams,
        flavors=flavors,
        runs=len(simulated.runs),
        never=sum(bool(run.never) for run in simulated.runs),
        preemptions=sum(run.preemptions for run in simulated.runs),
        lost_chip_hours=sum(run.lost_chip_hours for run in simulated.runs),
        chip_hours=sum(flavor.chip_hours for flavor in flavors.values()),
        usd=sum(flavors[name].usd or 0.0 for name in priced),
        quota_usd=sum(
            flavors[name].chips * available_seconds(simulated, name, ends) / 3600 * (platform.flavors[name].usd or 0.0)
            for name in priced
        ),
        unpriced=sorted(name for name, each in flavors.items() if name not in priced and each.chips + each.chip_hours),
        ends=simulated.ends,
    )


def held_seconds(attempt: Attempt, ends: float) -> float:
    """Return for how long an attempt holds quota within the simulation."""
    until = next((time for time in (attempt.released, attempt.end) if time is not None), ends)
    return max(0.0, until - max(0.0, attempt.start))


def available_seconds(simulated: Simulated, flavor: str, ends: float) -> float:
    """Return for how long a flavor has nodes within the simulation."""
    out = sum(
        max(0.0, min(outage.end, ends) - max(0.0, outage.start))
        for outage in simulated.outages
        if outage.flavor == flavor
    )
    return max(0.0, ends - out)


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest of the values that at least this share of them does not exceed; None without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _flavor(simulated: Simulated, name: str, chip_hours: float, ends: float) -> FlavorFigures:
    flavor = simulated.platform.flavors[name]
    chips = int(simulated.platform.quota(name, flavor.resource))
    possible = chips * available_seconds(simulated, name, ends) / 3600
    return FlavorFigures(
        chips=chips,
        chip_hours=chip_hours,
        utilisation=chip_hours / possible if possible else None,
        usd=None if flavor.usd is None else chip_hours * flavor.usd,
    )


def _team(runs: Sequence[RunResult], held_by: Mapping[str, float]) -> TeamFigures:
    waits = [run.wait for run in runs if run.wait is not None]
    return TeamFigures(
        runs=len(runs),
        never=sum(bool(run.never) for run in runs),
        median_wait=quantile(waits, LIKELY_WAIT),
        wait_95=quantile(waits, LONG_WAIT),
        longest_wait=max(waits, default=None),
        preemptions=sum(run.preemptions for run in runs),
        lost_chip_hours=sum(run.lost_chip_hours for run in runs),
        chip_hours=sum(held_by.get(run.name, 0.0) for run in runs) / 3600,
    )
