"""Simulate the runs of a cluster: when those that wait start, and when those that run end."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from launcher import formatting
from launcher.k8s.kueue.queues import queue_order
from launcher.products.planner.scheduler.model import Event
from launcher.products.planner.simulation import durations, from_values
from launcher.products.planner.simulation.changes import NO_CHANGES, Changes, simulate_changed
from launcher.products.planner.simulation.cluster_state import ClusterState
from launcher.products.planner.simulation.comparison import Comparison
from launcher.products.planner.simulation.live_runs import LiveRun, live_runs
from launcher.products.planner.simulation.offline import Kueue
from launcher.products.planner.simulation.platform import Platform
from launcher.products.planner.simulation.simulated import RunResult, Simulated

_SOON = 2.5  # seconds before a start in which the quota that it needs was released


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in the future in seconds from now, with the earliest and the latest in the band. None: never."""

    at: float | None
    earliest: float | None
    latest: float | None

    def as_json(self, now: datetime) -> dict[str, Any]:
        time = None if self.at is None else (now + timedelta(seconds=self.at)).isoformat(timespec="seconds")
        return {"seconds": self.at, "earliest": self.earliest, "latest": self.latest, "time": time}

    @property
    def likely(self) -> str:
        """The time as text, without its band."""
        if self.at is None:
            return "never"
        return "now" if self.at < 30 else f"in about {formatting.duration(self.at)}"

    @property
    def text(self) -> str:
        """The time as text, with its band."""
        if self.at is None:
            return "never"
        about = self.likely
        if self.earliest is None:
            return about
        latest = "never" if self.latest is None else formatting.duration(self.latest)
        shortest = formatting.duration(self.earliest)
        return about if shortest == latest else f"{about} ({shortest} to {latest})"


@dataclass(frozen=True)
class Expectation:
    """What is expected of a run. A run that waits has `starts`; every run has `ends`, and how long it takes.

    `waits_for` has the runs whose quota it needs, `preempts` those that it will preempt, and `preempted_by` those that
    will preempt it. `behind` is the first run of its queue if the queue is StrictFIFO: no other run starts before that
    one. `never` is the reason why it does not start, or "".
    """

    run: LiveRun
    starts: Moment | None
    ends: Moment
    waits_for: Sequence[str]
    preempts: Sequence[str]
    preempted_by: Sequence[str]
    never: str
    behind: str = ""

    def as_json(self, now: datetime) -> dict[str, Any]:
        return {
            "name": self.run.name,
            "namespace": self.run.namespace,
            "team": self.run.team,
            "queue": self.run.job.queue,
            "state": "running" if self.run.running else "waiting",
            "starts": None if self.starts is None else self.starts.as_json(now),
            "ends": self.ends.as_json(now),
            "takes": self.run.duration,
            "waits_for": list(self.waits_for),
            "preempts": list(self.preempts),
            "preempted_by": list(self.preempted_by),
            "behind": self.behind,
            "never": self.never,
        }


@dataclass(frozen=True)
class LiveAnswer:
    """The expectations of the user's runs, and what is assumed or ignored, a sentence each.

    `namespace` is that of the runs, or "" for all namespaces. `simulated` has the likely course of all runs, `changed`
    that after a change, or None without one, and `change` its options.
    """

    now: datetime
    namespace: str
    runs: Sequence[Expectation]
    notes: Sequence[str]
    simulated: Simulated = field(repr=False)
    changed: Simulated | None = field(default=None, repr=False)
    change: Sequence[str] = ()

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.simulated, self.changed, self.notes, self.change)

    def as_json(self) -> dict[str, Any]:
        data = {
            "now": self.now.isoformat(timespec="seconds"),
            "runs": [run.as_json(self.now) for run in self.runs],
            "notes": list(self.notes),
        }
        if self.changed is None:
            return data
        compared = self.comparison.as_json()
        return {**data, **{key: compared[key] for key in ("before", "after", "change", "comparison", "notes")}}


def expectations(
    state: ClusterState,
    *,
    assumed: float = durations.DEFAULT_ASSUMPTION,
    check: Callable[[], None] = lambda: None,
) -> LiveAnswer:
    """Return what is expected of the runs in the user's namespace, or in all of them.

    `check` is called again and again; what it raises ends the simulation.
    """
    runs, notes = live_runs(state, assumed)
    check()
    likely, shortest, longest = (
        _simulate(state.platform, _lasting(runs, which), state.kueue, check=check)
        for which in ("seconds", "shortest", "longest")
    )
    mine = [run for run in runs.values() if run.mine]
    mine.sort(key=lambda run: (run.running, run.job.created, run.name))
    course = _Course(likely, shortest, longest)
    first = _first_of_strict_queues(state, runs.values())
    answers = [_expect(run, course, runs, first.get(run.job.queue)) for run in mine]
    return LiveAnswer(
        state.now,
        "" if state.all_namespaces else state.namespace,
        answers,
        list(dict.fromkeys([*notes, *state.assumed, *state.platform.ignored])),
        likely,
    )


def with_change(
    state: ClusterState,
    answer: LiveAnswer,
    changes: Changes,
    *,
    files: Sequence[str] = (),
    sets: Sequence[str] = (),
    assumed: float = durations.DEFAULT_ASSUMPTION,
) -> LiveAnswer:
    """Return the answer with a second simulation: in the queues of `files` and `sets`, and with other changes.

    Queues that `files` lack stay as they are in the cluster. Raises LauncherError for values or a change that are not
    valid.
    """
    platform = from_values.platform(files, sets) if files or sets else state.platform
    runs, _ = live_runs(state, assumed)
    changed = _simulate(_with_other_queues(platform, state.platform), runs, state.kueue, changes)
    return replace(answer, changed=changed, change=changes.as_options(files, sets, "-f"))


def _with_other_queues(values: Platform, cluster: Platform) -> Platform:
    """Return the queues of the values, and those of the cluster that the values do not have, unchanged."""
    names, cohorts = set(values.queue_names), {cohort.name for cohort in values.cohorts}
    return replace(
        values,
        cluster_queues=[*values.cluster_queues, *(each for each in cluster.cluster_queues if each.name not in names)],
        cohorts=[*values.cohorts, *(each for each in cluster.cohorts if each.name not in cohorts)],
        flavors={**cluster.flavors, **values.flavors},
        teams={**cluster.teams, **values.teams},
        priorities={**cluster.priorities, **values.priorities},
        resource_flavors={**cluster.resource_flavors, **values.resource_flavors},
    )


def _simulate(
    platform: Platform,
    runs: Mapping[str, LiveRun],
    kueue: Kueue,
    changes: Changes = NO_CHANGES,
    check: Callable[[], None] = lambda: None,
) -> Simulated:
    """Simulate the runs of a cluster, without those that cannot start."""
    able = {name: run for name, run in runs.items() if not run.stopped}
    jobs = {name: run.job for name, run in able.items()}
    teams = {name: run.team for name, run in able.items()}
    return simulate_changed(platform, jobs, teams, changes, kueue.settings(), check=check)


def _lasting(runs: Mapping[str, LiveRun], which: str) -> dict[str, LiveRun]:
    """Return the runs with another of their durations: seconds, shortest, longest."""
    changed = {}
    for name, run in runs.items():
        held = -run.job.holding.reserved if run.job.holding is not None else 0.0
        job = replace(run.job, takes=held + getattr(run.duration, which))
        changed[name] = replace(run, job=job)
    return changed


class _Course:
    """What happens to each run in the three simulations, by its name: found once for all runs."""

    def __init__(self, *simulated: Simulated) -> None:
        self._results = [{each.name: each for each in one.runs} for one in simulated]
        self.likely = simulated[0]
        self.preempts: defaultdict[str, list[str]] = defaultdict(list)
        self.preempted_by: defaultdict[str, list[str]] = defaultdict(list)
        self._releases: list[Event] = []  # in the order of their times, as all events
        for event in self.likely.outcome.events:
            if event.eviction is not None:
                self.preempts[event.eviction.by].append(event.job)
                self.preempted_by[event.job].append(event.eviction.by)
            if event.what in ("finished", "released"):
                self._releases.append(event)

    def results(self, name: str) -> list[RunResult]:
        return [of_run[name] for of_run in self._results]

    def released(self, since: float, until: float) -> list[str]:
        """Return the runs that release quota in a time."""
        first = bisect.bisect_left(self._releases, since, key=lambda event: event.at)
        end = bisect.bisect_right(self._releases, until, key=lambda event: event.at)
        return [event.job for event in self._releases[first:end]]


def _first_of_strict_queues(state: ClusterState, runs: Iterable[LiveRun]) -> dict[str, LiveRun]:
    """Return the run that Kueue tries first, by the name of each StrictFIFO queue in which runs wait."""
    strict = {queue.name for queue in state.queues if queue.strict}
    waiting = [run for run in runs if run.job.queue in strict and not run.running and not run.stopped]
    waiting.sort(key=lambda run: queue_order(run.job.priority, run.job.created, run.job.name), reverse=True)
    return {run.job.queue: run for run in waiting}


def _expect(run: LiveRun, course: _Course, runs: Mapping[str, LiveRun], first: LiveRun | None) -> Expectation:
    name = run.job.name
    if run.stopped:
        never = Moment(None, None, None)
        return Expectation(run, never, never, (), (), (), run.stopped)
    results = course.results(name)
    starts = None if run.running else _moment([result.starts for result in results])
    ends = _moment([result.ends for result in results])
    preempts, by = course.preempts[name], course.preempted_by[name]
    waits_for: list[str] = []
    if starts is not None and starts.at is not None and starts.at > _SOON:
        released = [
            other
            for other in course.released(starts.at - _SOON, starts.at)
            if other != name and _same_flavors(other, name, course.likely)
        ]
        waits_for = [each for each in dict.fromkeys(released) if each not in preempts]
    reason = results[0].never if results[0].starts is None else ""
    if blocker := results[0].blocked_by:
        reason = reason.replace(blocker, _shown(blocker, runs), 1)
    return Expectation(
        run=run,
        starts=starts,
        ends=ends,
        waits_for=[_shown(each, runs) for each in waits_for],
        preempts=[_shown(each, runs) for each in dict.fromkeys(preempts)],
        preempted_by=[_shown(each, runs) for each in dict.fromkeys(by) if each],
        never=reason,
        behind="" if run.running or first in (None, run) else _shown(first.job.name, runs),
    )


def _shown(name: str, runs: Mapping[str, LiveRun]) -> str:
    run = runs[name]
    return f"{run.name} (queue {run.job.queue})" if not run.namespace else name


def _same_flavors(job: str, other: str, simulated: Simulated) -> bool:
    """Return whether two jobs use a flavor in common, in any attempt."""
    used = [
        {
            flavor
            for attempt in simulated.outcome.attempts[each]
            for given in attempt.flavors
            for flavor in given.values()
        }
        for each in (job, other)
    ]
    return bool(used[0] & used[1])


def _moment(times: Sequence[float | None]) -> Moment:
    likely = times[0]
    if likely is None:
        return Moment(None, None, None)
    known = [time for time in times if time is not None]
    return Moment(likely, min(known), max(known) if len(known) == len(times) else None)
