"""Simulate the runs of a cluster: when those that wait start, and when those that run end."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from launcher import formatting
from launcher.k8s import label_keys
from launcher.k8s.kueue.queues import ClusterQueue, FlavorResource
from launcher.k8s.kueue.scheduler.model import Event, Holding, Job, PodSetRequest
from launcher.k8s.kueue.workloads import Workload, mismatch
from launcher.k8s.objects import parse_time, quantity, seconds_since
from launcher.simulation import changes as changing
from launcher.simulation import durations, from_values
from launcher.simulation.changes import Changes
from launcher.simulation.cluster_state import ClusterState, job_uid
from launcher.simulation.comparison import Comparison
from launcher.simulation.comparison import as_text as comparison_text
from launcher.simulation.durations import Duration, Source
from launcher.simulation.jobs import jobs_of, team_of
from launcher.simulation.platform import Platform
from launcher.simulation.simulated import RunResult, Simulated, run_simulation

_RANK = 1e-6  # seconds between the arrivals of two runs that wait now: only their order matters
_HIGHEST = 2**31 - 1  # the priority of hidden runs with quota: no run preempts them by its priority
_SOON = 2.5  # seconds before a start in which the quota that it needs was released


@dataclass(frozen=True)
class LiveRun:
    """A run of the cluster as a job. `mine`: it is in the user's namespace.

    `stopped` is the reason why it cannot start, or "".
    """

    job: Job
    team: str
    namespace: str
    name: str
    mine: bool
    running: bool
    duration: Duration
    stopped: str = ""


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
    will preempt it. `never` is the reason why it does not start, or "".
    """

    run: LiveRun
    starts: Moment | None
    ends: Moment
    waits_for: Sequence[str]
    preempts: Sequence[str]
    preempted_by: Sequence[str]
    never: str

    def as_json(self, now: datetime) -> dict[str, Any]:
        return {
            "name": self.run.name,
            "namespace": self.run.namespace,
            "team": self.run.team,
            "queue": self.run.job.queue,
            "state": "running" if self.run.running else "waiting",
            "starts": None if self.starts is None else self.starts.as_json(now),
            "ends": self.ends.as_json(now),
            "takes": self.run.duration.as_json(),
            "waits_for": list(self.waits_for),
            "preempts": list(self.preempts),
            "preempted_by": list(self.preempted_by),
            "never": self.never,
        }


@dataclass(frozen=True)
class LiveAnswer:
    """The expectations of the user's runs, and what is assumed or ignored, a sentence each.

    `simulated` has the likely course of all runs, and `changed` that after a change; None without one.
    """

    now: datetime
    namespace: str
    runs: Sequence[Expectation]
    notes: Sequence[str]
    simulated: Simulated = field(repr=False)
    changed: Simulated | None = field(default=None, repr=False)

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.simulated, self.changed, self.notes)

    def as_json(self) -> dict[str, Any]:
        data = {
            "now": self.now.isoformat(timespec="seconds"),
            "runs": [run.as_json(self.now) for run in self.runs],
            "notes": list(self.notes),
        }
        if self.changed is None:
            return data
        compared = self.comparison.as_json()
        return {**data, **{key: compared[key] for key in ("before", "after", "comparison")}}


def live_runs(state: ClusterState, assumed: float) -> tuple[dict[str, LiveRun], list[str]]:
    """Return the runs of a cluster by the name of their job, and what is assumed about them.

    `assumed` is the time of a run about which nothing is known, in seconds.
    """
    found: dict[str, LiveRun] = {}
    notes: list[str] = []
    known = {queue.name for queue in state.queues}
    waiting = [workload for workload in state.workloads if _waits(workload)]
    holding = [workload for workload in state.workloads if workload.has_quota and not workload.is_true("Finished")]
    for workload in holding:
        if workload.cluster_queue in known:
            _add(found, _holder(workload, state, assumed), workload)
    waiting.sort(key=lambda workload: (workload.queued_at, workload.uid))
    for rank, workload in enumerate(waiting):
        local = state.local_queues.get((workload.namespace, workload.local_queue))
        queue = local.cluster_queue if local else ""
        if queue in known and local is not None:
            stopped = f"the LocalQueue {local.name} is stopped" if local.stopped else ""
            _add(found, _waiter(workload, queue, rank * _RANK, state, assumed, stopped), workload)
        elif workload.namespace == state.namespace:
            notes.append(f"{workload.owner} waits in a queue that does not exist ({workload.local_queue or 'none'}).")
    for each in sorted(state.queues, key=lambda each: each.name):
        hidden = list(_hidden(each, found, state, assumed, notes))
        found.update({run.job.name: run for run in hidden})
    return found, notes


def expectations(
    state: ClusterState,
    *,
    assumed: float = durations.DEFAULT_ASSUMPTION,
    check: Callable[[], None] = lambda: None,
) -> LiveAnswer:
    """Return what is expected of the runs in the user's namespace.

    `check` is called again and again; what it raises ends the simulation.
    """
    runs, notes = live_runs(state, assumed)
    check()
    settings = state.kueue.settings()
    likely, shortest, longest = (
        simulate_live(state.platform, _lasting(runs, which), settings=settings, check=check)
        for which in ("seconds", "shortest", "longest")
    )
    mine = [run for run in runs.values() if run.mine]
    mine.sort(key=lambda run: (run.running, run.job.created, run.name))
    course = _Course(likely, shortest, longest)
    answers = [_expect(run, course, runs) for run in mine]
    return LiveAnswer(
        state.now,
        state.namespace,
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
    able = {name: run for name, run in runs.items() if not run.stopped}
    jobs = {name: run.job for name, run in able.items()}
    teams = {name: run.team for name, run in able.items()}
    platform = _with_other_queues(platform, state.platform)
    added = changes.added()
    jobs |= jobs_of(added, platform)
    teams |= {run.name: team_of(run, platform) for run in added}
    jobs, teams = changing.without_teams(jobs, teams, changes.without_teams)
    outages = changing.outages(changes.outages, platform)
    changed = run_simulation(platform, jobs, teams, outages=outages, settings=state.kueue.settings())
    return replace(answer, changed=changed)


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


def simulate_live(platform: Platform, runs: Mapping[str, LiveRun], **options: Any) -> Simulated:
    """Simulate the runs of a cluster, without those that cannot start."""
    able = {name: run for name, run in runs.items() if not run.stopped}
    jobs = {name: run.job for name, run in able.items()}
    return run_simulation(platform, jobs, {name: run.team for name, run in able.items()}, **options)


# --- from Workloads to jobs -------------------------------------------------------------------------------------------


def _add(found: dict[str, LiveRun], run: LiveRun, workload: Workload) -> None:
    """Add a run. A Job and a JobSet can have the same name; the second one gets that of its Workload in addition."""
    if run.job.name in found:
        run = replace(run, job=replace(run.job, name=f"{run.job.name} ({workload.name})"))
    found[run.job.name] = run


def _waits(workload: Workload) -> bool:
    """Return whether it waits in a queue, or returns to it after a delay."""
    return workload.is_queued or (
        workload.active
        and not workload.is_true("Finished")
        and not workload.has_quota
        and workload.condition("Requeued").is_false
        and bool(workload.requeue.at)
    )


def _holder(workload: Workload, state: ClusterState, assumed: float) -> LiveRun:
    assignments = (workload.status.get("admission") or {}).get("podSetAssignments") or []
    held = max(0.0, seconds_since(workload.reserved.since, state.now)) if workload.reserved.since else 0.0
    flavors = tuple(dict(entry.get("flavors") or {}) for entry in assignments)
    pod_sets = tuple(
        PodSetRequest(
            {
                resource: quantity(amount)
                for resource, amount in (entry.get("resourceUsage") or {}).items()
                if resource in given
            },
            accepted_flavors(workload, str(entry["name"]), state.platform),
            str(entry["name"]),
        )
        for entry, given in zip(assignments, flavors, strict=True)
    )
    run = _run(workload, workload.cluster_queue, pod_sets, state, assumed, held=held)
    job = replace(
        run.job,
        created=0.0,
        takes=held + run.duration.seconds,
        holding=Holding(flavors, -held),
    )
    return replace(run, job=job, running=True)


def _waiter(
    workload: Workload, queue: str, created: float, state: ClusterState, assumed: float, stopped: str
) -> LiveRun:
    pod_sets = tuple(
        PodSetRequest(
            {resource: amount for resource, amount in pod_set.asks.items() if amount},
            accepted_flavors(workload, pod_set.name, state.platform),
            pod_set.name,
        )
        for pod_set in workload.pod_sets
    )
    if workload.condition("Requeued").is_false and workload.requeue.at:
        created = max(created, (parse_time(workload.requeue.at) - state.now).total_seconds())
    run = _run(workload, queue, pod_sets, state, assumed)
    return replace(run, job=replace(run.job, created=created), stopped=stopped)


def _run(
    workload: Workload,
    queue: str,
    pod_sets: tuple[PodSetRequest, ...],
    state: ClusterState,
    assumed: float,
    held: float = 0.0,
) -> LiveRun:
    uid = job_uid(workload)
    obj, status = state.runs.get(uid), state.statuses.get(uid)
    config = obj.config if obj is not None else {}
    limit = workload.spec.get("maximumExecutionTimeSeconds")
    duration = durations.time_left(
        status=status,
        config=config,
        deadline=durations.deadline_of(obj.raw if obj is not None else {}, limit),
        held=held,
        assumed=assumed,
    )
    mine = workload.namespace == state.namespace
    local = state.local_queues.get((workload.namespace, workload.local_queue))
    team = (obj.team if obj is not None else "") or (local.label(label_keys.TEAM) if local else "")
    name = obj.name if obj is not None else workload.owner
    job = Job(
        name=name if mine else f"{workload.namespace}/{name}",
        queue=queue,
        pod_sets=pod_sets,
        priority=workload.priority,
        created=0.0,
        takes=duration.seconds,
        checkpoint_every=durations.checkpoint_seconds(config, durations.step_seconds(status, config)),
    )
    return LiveRun(job, team or workload.namespace, workload.namespace, name, mine, False, duration)


def accepted_flavors(workload: Workload, pod_set: str, platform: Platform) -> frozenset[str] | None:
    """Return the flavors that the pods of a pod set match; None if its template is not known."""
    spec = next((each.spec for each in workload.pod_sets if each.name == pod_set), None)
    if not spec:
        return None
    return frozenset(name for name, flavor in platform.resource_flavors.items() if mismatch(flavor, spec) is None)


# --- what RBAC hides --------------------------------------------------------------------------------------------------


def _hidden(
    queue: ClusterQueue, runs: Mapping[str, LiveRun], state: ClusterState, assumed: float, notes: list[str]
) -> Iterator[LiveRun]:
    """Yield jobs for the quota that hidden runs hold in a queue, and for those that wait there."""
    if state.all_visible:
        return
    seen: defaultdict[FlavorResource, Decimal] = defaultdict(Decimal)
    own = [run for run in runs.values() if run.job.queue == queue.name]
    for run in own:
        if run.job.holding is not None:
            for given, pod_set in zip(run.job.holding.flavors, run.job.pod_sets, strict=True):
                for resource, flavor in given.items():
                    seen[flavor, resource] += pod_set.amounts.get(resource, Decimal())
    duration = Duration(assumed, Source.ASSUMED, f"assumed to take {formatting.duration(assumed)}")
    hidden = {what: used - seen[what] for what, used in queue.used.items() if used > seen[what]}
    for number, (what, amount) in enumerate(sorted(hidden.items()), start=1):
        flavor, resource = what
        yield _hidden_run(
            f"hidden-{queue.name}-{number}",
            queue.name,
            PodSetRequest({resource: amount}, frozenset({flavor})),
            duration,
            Holding(({resource: flavor},)),
        )
    if hidden:
        notes.append(
            f"You may not read the runs of other teams: the quota that they hold in the queue {queue.name} is assumed "
            f"to be free in {formatting.duration(assumed)} (--assume), and never preempted by priority."
        )
    waiting = (queue.pending or 0) - sum(not run.running for run in own)
    if waiting <= 0:
        return
    example = next((run.job for run in own if not run.running), None)
    if example is None:
        notes.append(
            f"You may not read the {_waiting(waiting)} in the queue {queue.name}; what they request is unknown, and "
            "they are left out of the simulation."
        )
        return
    notes.append(
        f"You may not read the {_waiting(waiting)} in the queue {queue.name}: each is assumed to be ahead of yours, "
        f"and to request what {example.name} requests for {formatting.duration(assumed)} (--assume)."
    )
    highest = max(run.job.priority for run in own if not run.running)
    for number in range(1, waiting + 1):
        made = _hidden_run(f"hidden-{queue.name}-waiting-{number}", queue.name, None, duration, None)
        job = replace(made.job, pod_sets=example.pod_sets, priority=highest, created=-number * _RANK)
        yield replace(made, job=job, running=False)


def _waiting(number: int) -> str:
    return "1 run that waits" if number == 1 else f"{number} runs that wait"


def _hidden_run(
    name: str, queue: str, request: PodSetRequest | None, duration: Duration, holding: Holding | None
) -> LiveRun:
    job = Job(name, queue, (request,) if request else (), _HIGHEST, 0.0, duration.seconds, holding=holding)
    return LiveRun(job, "other teams", "", "a run of another team", False, True, duration)


# --- the answer -------------------------------------------------------------------------------------------------------


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


def _expect(run: LiveRun, course: _Course, runs: Mapping[str, LiveRun]) -> Expectation:
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
    return Expectation(
        run=run,
        starts=starts,
        ends=ends,
        waits_for=[_shown(each, runs) for each in waits_for],
        preempts=[_shown(each, runs) for each in dict.fromkeys(preempts)],
        preempted_by=[_shown(each, runs) for each in dict.fromkeys(by) if each],
        never=results[0].never if results[0].starts is None else "",
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


def as_text(answer: LiveAnswer) -> str:
    """Return a table of the user's runs, a line for each thing that one of them waits for, and the notes."""
    if not answer.runs:
        lines = ["No run of this namespace waits or runs in a queue."]
    else:
        rows = [("RUN", "QUEUE", "STARTS", "ENDS", "TAKES")]
        rows += [
            (
                each.run.name,
                each.run.job.queue,
                "runs" if each.starts is None else each.starts.text,
                each.ends.text,
                each.run.duration.text,
            )
            for each in answer.runs
        ]
        lines = [formatting.table(rows)]
        details = [line for each in answer.runs for line in _details(each)]
        if details:
            lines.append("\n".join(map(formatting.paragraph, details)))
    if answer.changed is not None:
        lines.append(comparison_text(answer.comparison))
    elif answer.notes:
        lines.append("\n".join(formatting.paragraph(f"Note: {note}") for note in answer.notes))
    return "\n\n".join(lines)


def _details(each: Expectation) -> Iterator[str]:
    if each.never:
        yield f"{each.run.name} does not start: {each.never}."
    if each.waits_for:
        yield f"{each.run.name} waits for the quota of {_words(each.waits_for)}."
    if each.preempts:
        yield f"{each.run.name} preempts {_words(each.preempts)}."
    if each.preempted_by:
        yield f"{each.run.name} is preempted by {_words(each.preempted_by)}, and starts again."


def _words(names: Sequence[str]) -> str:
    shown = list(names[:5]) + ([f"{len(names) - 5} more"] if len(names) > 5 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
