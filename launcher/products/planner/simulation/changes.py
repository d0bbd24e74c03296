"""Changes of a simulation that answer "what if": more runs, a team's absence, nodes that fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from launcher import formatting
from launcher.config.suggest import closest
from launcher.errors import UsageError
from launcher.products.planner.scheduler.model import Job, KueueSettings, Outage
from launcher.products.planner.simulation.jobs import jobs_of, team_of
from launcher.products.planner.simulation.platform import Platform
from launcher.products.planner.simulation.simulated import Simulated, run_simulation
from launcher.products.planner.simulation.trace import TraceRun, read_run


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences of a change, apart from those of the queues. Each is the text of an option."""

    add: Sequence[str] = ()
    outages: Sequence[str] = ()
    without_teams: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.add or self.outages or self.without_teams)

    def as_options(self, files: Sequence[str], sets: Sequence[str], option: str = "--compare") -> list[str]:
        """Return the options of the whole change; `files` are those of `option`."""
        texts = {option: files, "--set": sets, "--add": self.add, "--outage": self.outages}
        texts["--without-team"] = self.without_teams
        return [f"{name} {text}" for name, given in texts.items() for text in given]

    def added(self) -> list[TraceRun]:
        """Return the runs of `add`. Raises LauncherError if one is not valid."""
        return [_numbered(read_run(text, f"--add {number}"), number) for number, text in enumerate(self.add, start=1)]


NO_CHANGES = Changes()


def _numbered(run: TraceRun, number: int) -> TraceRun:
    """Return a run of --add; without a name it is added-1, and so on."""
    return replace(run, name=f"added-{number}") if run.name == "run-1" else run


def without_teams(
    jobs: Mapping[str, Job], teams: Mapping[str, str], names: Sequence[str]
) -> tuple[dict[str, Job], dict[str, str]]:
    """Return the jobs and teams without those of the named teams. Raises UsageError for a team that has no run."""
    known = sorted(set(teams.values()))
    for name in names:
        if name not in known:
            near = closest(name, known)
            have = f"; did you mean {near[0]}?" if near else f"; the teams are {', '.join(known) or 'none'}."
            raise UsageError(f'--without-team {name}: no run is of a team "{name}"{have}')
    return (
        {name: job for name, job in jobs.items() if teams[name] not in names},
        {name: team for name, team in teams.items() if team not in names},
    )


def outages(texts: Sequence[str], platform: Platform) -> list[Outage]:
    """Return the outages of options FLAVOR or FLAVOR:FROM-TO, with durations from the start of the simulation."""
    return [_outage(text, platform) for text in texts]


def _outage(text: str, platform: Platform) -> Outage:
    flavor, _, times = text.partition(":")
    if flavor not in platform.flavors:
        near = closest(flavor, platform.flavors)
        have = f"; did you mean {near[0]}?" if near else f"; the flavors are {', '.join(sorted(platform.flavors))}."
        raise UsageError(f'--outage {text}: there is no flavor "{flavor}"{have}')
    if not times:
        return Outage(flavor, 0.0, math.inf)
    first, dash, last = times.partition("-")
    start, end = formatting.seconds(first), formatting.seconds(last)
    if not dash or start is None or end is None:
        raise UsageError(f'--outage {text}: "{times}" is not a time.', f"Write --outage {flavor}:2h-6h")
    if end <= start:
        raise UsageError(f"--outage {text}: it ends before it starts.")
    return Outage(flavor, start, end)


def simulate_changed(
    platform: Platform,
    jobs: Mapping[str, Job],
    teams: Mapping[str, str],
    changes: Changes,
    settings: KueueSettings,
    check: Callable[[], None] = lambda: None,
) -> Simulated:
    """Simulate the jobs after the changes. `teams` has the team of each job.

    `check` is called again and again; what it raises ends the simulation.
    Raises UsageError if a change names what does not exist, or if an added run has the name of another one.
    """
    jobs, teams = dict(jobs), dict(teams)
    for run in changes.added():
        if run.name in jobs:
            raise UsageError(f'{run.place}: another run has the name "{run.name}".', "Give it another name.")
        jobs |= jobs_of([run], platform)
        teams[run.name] = team_of(run, platform)
    jobs, teams = without_teams(jobs, teams, changes.without_teams)
    outages_of_platform = outages(changes.outages, platform)
    return run_simulation(platform, jobs, teams, outages=outages_of_platform, settings=settings, check=check)
