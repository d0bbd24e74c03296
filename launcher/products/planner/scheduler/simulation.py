"""The simulation of Kueue: what happens to jobs in queues, event by event. Deterministic, without I/O."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import Any

from launcher.errors import LauncherError
from launcher.k8s.kueue.queues import ClusterQueue
from launcher.k8s.kueue.quota import Quotas
from launcher.products.planner.scheduler.cycle import Scheduler
from launcher.products.planner.scheduler.fair_preemption import FairSharing
from launcher.products.planner.scheduler.flavors import Assignment
from launcher.products.planner.scheduler.model import Attempt, Event, Eviction, Flavors, Outcome, Scenario
from launcher.products.planner.scheduler.pending import Pending
from launcher.products.planner.scheduler.preemption import Target
from launcher.products.planner.scheduler.rules import Rules
from launcher.products.planner.scheduler.shares import Shares, weight_of
from launcher.products.planner.scheduler.state import JobState, QueueState, RootCohort

RETRY_AFTER = 1.0
"""The seconds from a release of quota until Kueue tries again what was set aside (inadmissible_workloads.go, 0.17)."""

MOST_EVICTIONS = 1_000
"""The evictions of one workload after which the simulation fails: its workloads preempt each other without end."""

_ZERO = Decimal()
_FINISHED, _RELEASED, _OUTAGE, _TRY_AGAIN, _CREATED, _CYCLE = range(6)

_Key = tuple[float, int, str, int]


def simulate(scenario: Scenario, *, until: float | None = None, check: Callable[[], None] = lambda: None) -> Outcome:
    """Simulate what happens to the jobs of a scenario, until nothing happens any more or until a time.

    `check` is called before each event; what it raises ends the simulation. Raises LauncherError if the scenario is not
    valid: a queue that does not exist, a negative time, or workloads that preempt each other without end.
    """
    return _Simulation(scenario).run(until, check)


class _Simulation:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._rules = Rules.of(scenario.settings.version)
        self._now = 0.0
        self._events: list[Event] = []
        self._attempts: dict[str, list[Attempt]] = {}
        self._agenda: list[tuple[_Key, int, object]] = []
        self._sequence = count()
        self._unavailable: set[str] = set()
        self._pending: dict[str, Pending] = {}
        self._queues: dict[str, QueueState] = {}
        self._root_cohorts: dict[str, RootCohort] = {}  # by the name of a queue
        self._schedulers: dict[int, Scheduler] = {}
        self._workloads: dict[str, JobState] = {}
        self._ends: dict[str, int] = {}  # the entry of the agenda with the end of a workload, if it is valid
        self._releases: dict[str, int] = {}  # the entry with the release of an evicted workload, if it is valid
        self._to_try: set[int] = set()  # root cohorts that are tried again soon
        self._latency = scenario.settings.decision_seconds
        self._planned: set[int] = set()  # root cohorts with a planned cycle
        self._busy: dict[int, float] = {}  # when the last cycle of a root cohort ends
        self._set_up_queues()
        self._set_up_jobs()

    # --- the start ---

    def _set_up_queues(self) -> None:
        scenario, settings = self._scenario, self._scenario.settings
        sources = sorted(scenario.cluster_queues, key=lambda queue: queue.name)
        cohorts = sorted(scenario.cohorts, key=lambda cohort: cohort.name)
        quotas = Quotas([_without_usage(queue) for queue in sources], cohorts)
        weights = {id(quotas.cohorts[cohort.name]): weight_of(cohort.spec) for cohort in cohorts}
        root_cohorts: dict[int, RootCohort] = {}
        for source in sources:
            node = quotas.node(source.name)
            weights[id(node)] = weight_of(source.spec)
            root_cohort = root_cohorts.setdefault(id(node.root), RootCohort(node.root))
            queue = root_cohort.queues[source.name] = self._queues[source.name] = QueueState(source, node)
            self._root_cohorts[source.name] = root_cohort
            self._pending[source.name] = Pending(strict=queue.strict, rules=self._rules)
        for root_cohort in root_cohorts.values():
            sharing = None
            if settings.fair_sharing is not None:
                sharing = FairSharing(root_cohort, Shares(weights), settings.fair_sharing, self._rules.nominal_first)
            pending = {name: self._pending[name] for name in root_cohort.queues}
            self._schedulers[id(root_cohort)] = Scheduler(
                root_cohort, pending, sharing, self._rules, self._unavailable, self._admit, self._evict
            )

    def _set_up_jobs(self) -> None:
        for job in sorted(self._scenario.jobs, key=lambda job: (job.created, job.name)):
            if job.queue not in self._queues:
                raise LauncherError(f"The job {job.name} is in the queue {job.queue}, which does not exist.")
            if job.name in self._workloads:
                raise LauncherError(f"There are two jobs with the name {job.name}.")
            if job.takes < 0 or job.admission_delay < 0 or min(job.frees, default=0.0) < 0:
                raise LauncherError(f"The job {job.name} has a negative duration.")
            workload = self._workloads[job.name] = JobState(job, self._queues[job.queue])
            self._attempts[job.name] = []
            if job.holding is not None:
                self._reserve(workload, job.holding.flavors, job.holding.reserved)
            else:
                self._plan(job.created, _CREATED, job.name, workload)
        for outage in self._scenario.outages:
            if outage.end < outage.start:
                raise LauncherError(f"The outage of the flavor {outage.flavor} ends before it starts.")
            self._plan(outage.start, _OUTAGE, outage.flavor, True)
            self._plan(outage.end, _OUTAGE, outage.flavor, False)

    # --- the events ---

    def run(self, until: float | None, check: Callable[[], None] = lambda: None) -> Outcome:
        while self._agenda and (until is None or self._agenda[0][0][0] <= until):
            check()
            (at, kind, name, _), entry, value = heapq.heappop(self._agenda)
            self._now = at
            self._happen(kind, name, entry, value)
        self._events.sort(key=lambda event: event.at)
        never, blocked_by = self._never() if until is None else ({}, {})
        return Outcome(tuple(self._events), self._attempts, never, blocked_by)

    def _plan(self, at: float, kind: int, name: str, value: object) -> int:
        number = next(self._sequence)
        heapq.heappush(self._agenda, ((at, kind, name, number), number, value))
        return number

    def _happen(self, kind: int, name: str, entry: int, value: object) -> None:
        if isinstance(value, RootCohort):
            if kind == _CYCLE:
                self._run_cycle(value)
                return
            self._to_try.discard(id(value))
            for queue in value.queues:
                self._pending[queue].try_again()
            self._schedule(value)
        elif isinstance(value, JobState):
            if kind == _CREATED:
                self._record(Event(self._now, name, "created"))
                self._wait(value)
            elif kind == _FINISHED:
                if self._ends.get(name) == entry:
                    self._finish(value)
            elif self._releases.get(name) == entry:
                self._release(value)
        else:
            self._outage(name, starts=bool(value))

    def _schedule(self, root_cohort: RootCohort) -> None:
        """Plan a cycle for a root cohort, as soon as its last one has ended."""
        if id(root_cohort) not in self._planned:
            self._planned.add(id(root_cohort))
            self._plan(max(self._now, self._busy.get(id(root_cohort), 0.0)), _CYCLE, root_cohort.root.name, root_cohort)

    def _run_cycle(self, root_cohort: RootCohort) -> None:
        self._planned.discard(id(root_cohort))
        self._busy[id(root_cohort)] = self._now + self._scenario.settings.cycle_seconds
        if self._schedulers[id(root_cohort)].cycle():
            self._schedule(root_cohort)

    # --- what happens to a workload ---

    def _wait(self, workload: JobState) -> None:
        root_cohort = self._root_cohorts[workload.queue.name]
        self._pending[workload.queue.name].add(workload)
        self._schedule(root_cohort)

    def _admit(self, workload: JobState, assignment: Assignment) -> None:
        at = self._now + self._latency
        self._reserve(workload, tuple(assignment.flavors), at)
        self._record(Event(at, workload.name, "admitted", workload.flavors))

    def _reserve(self, workload: JobState, flavors: Flavors, at: float) -> None:
        """Let a workload hold quota since a time, and plan its end."""
        job, root_cohort = workload.job, self._root_cohorts[workload.queue.name]
        workload.flavors, workload.reserved, workload.evicted = flavors, at, False
        workload.admitted = at + job.admission_delay
        workload.usage = {}
        for given, pod_set in zip(flavors, job.pod_sets, strict=True):
            for resource, flavor in given.items():
                what = (flavor, resource)
                workload.usage[what] = workload.usage.get(what, _ZERO) + pod_set.amounts.get(resource, _ZERO)
        root_cohort.add_usage(workload)
        root_cohort.version += 1
        workload.queue.start(workload)
        takes = job.takes
        if workload.evictions < len(job.takes_before):
            takes = job.takes_before[workload.evictions]
        end = max(self._now, workload.admitted + takes - workload.kept)
        self._ends[workload.name] = self._plan(end, _FINISHED, workload.name, workload)
        self._attempts[workload.name].append(Attempt(workload.name, flavors, at, workload.admitted))

    def _finish(self, workload: JobState) -> None:
        """End a workload. It may end while it is being evicted, before its pods have stopped."""
        del self._ends[workload.name]
        self._releases.pop(workload.name, None)
        self._record(Event(self._now, workload.name, "finished"))
        self._close(workload, end=self._now, released=self._now, kept=workload.job.takes)
        self._free(workload)

    def _evict(self, target: Target, by: JobState) -> None:
        self._stop(target.workload, Eviction(target.reason, by.name), self._now + self._latency)

    def _stop(self, workload: JobState, why: Eviction, at: float) -> None:
        """Start an eviction: the workload holds its quota until its pods have stopped."""
        job, root_cohort = workload.job, self._root_cohorts[workload.queue.name]
        workload.evicted = True
        root_cohort.version += 1
        frees = job.frees[min(workload.evictions, len(job.frees) - 1)] if job.frees else 0.0
        workload.evictions += 1
        if workload.evictions > MOST_EVICTIONS:
            raise LauncherError(
                f"The job {job.name} in the queue {job.queue} is evicted again and again: {MOST_EVICTIONS} times until "
                f"{at:.0f} s.",
                "Check the preemption policies of this queue and of the queues in its cohort.",
            )
        done = workload.kept + max(0.0, at - workload.admitted)
        every = job.checkpoint_every
        workload.kept = done // every * every if every else 0.0
        self._record(Event(at, workload.name, "evicted", eviction=why))
        self._close(workload, end=at, eviction=why, kept=workload.kept)
        self._releases[workload.name] = self._plan(at + frees, _RELEASED, workload.name, workload)

    def _release(self, workload: JobState) -> None:
        del self._ends[workload.name], self._releases[workload.name]
        self._record(Event(self._now, workload.name, "released"))
        self._close(workload, released=self._now)
        self._free(workload)
        self._wait(workload)

    def _free(self, workload: JobState) -> None:
        """Release quota. The heads that wait are tried at once, and the workloads that were set aside soon after."""
        root_cohort = self._root_cohorts[workload.queue.name]
        root_cohort.remove_usage(workload)
        root_cohort.version += 1
        workload.queue.stop(workload)
        workload.usage, workload.flavors, workload.evicted = {}, (), False
        self._schedule(root_cohort)
        self._try_again(root_cohort)

    def _try_again(self, root_cohort: RootCohort) -> None:
        if id(root_cohort) not in self._to_try:
            self._to_try.add(id(root_cohort))
            delay = RETRY_AFTER if self._rules.batched_retries else 0.0
            self._plan(self._now + delay, _TRY_AGAIN, root_cohort.root.name, root_cohort)

    def _outage(self, flavor: str, *, starts: bool) -> None:
        if starts:
            self._unavailable.add(flavor)
        else:
            self._unavailable.discard(flavor)
        for queue in self._queues.values():
            root_cohort = self._root_cohorts[queue.name]
            root_cohort.version += 1
            self._schedule(root_cohort)
            self._try_again(root_cohort)
            if starts:
                for workload in list(queue.running.values()):
                    if not workload.evicted and any(name == flavor for name, _ in workload.usage):
                        self._stop(workload, Eviction("NodeFailures"), self._now)

    # --- what is recorded ---

    def _record(self, event: Event) -> None:
        self._events.append(event)

    def _close(self, workload: JobState, **changes: Any) -> None:
        attempts = self._attempts[workload.name]
        attempts[-1] = replace(attempts[-1], **changes)

    def _never(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return why each job that still waits does not end, and the jobs that block others in StrictFIFO queues."""
        reasons: dict[str, str] = {}
        blocked_by: dict[str, str] = {}
        for name, pending in self._pending.items():
            queue = self._queues[name]
            first = pending.head() if queue.strict else None
            for workload in pending:
                why = _why_never(workload, queue)
                if not why and first is not None and first is not workload:
                    why = f"{first.name}, which never starts, is first in the queue {name}, which admits runs in order"
                    blocked_by[workload.name] = first.name
                reasons[workload.name] = why or f"the quota that it needs in the queue {name} is never free"
        return dict(sorted(reasons.items())), blocked_by


def _why_never(workload: JobState, queue: QueueState) -> str:
    """Return why a job could not start even without the other jobs, or ""."""
    if not queue.active:
        return f"the queue {queue.name} is stopped"
    for pod_set in workload.job.pod_sets:
        for resource, amount in sorted(pod_set.amounts.items()):
            group = queue.flavors_of(resource)
            if group is None:
                if amount:
                    return f"the queue {queue.name} has no quota for {resource}"
                continue
            flavors = [name for name in group[1] if pod_set.flavors is None or name in pod_set.flavors]
            if not flavors:
                return f"no flavor of the queue {queue.name} matches its pods"
            most = max(queue.node.potential_available((flavor, resource)) for flavor in flavors)
            if amount > most:
                return f"it requests {amount} of {resource}, and the queue {queue.name} can have at most {most}"
    return ""


def _without_usage(source: ClusterQueue) -> ClusterQueue:
    """Return a queue without the usage in its status: the simulation counts the usage of its own jobs."""
    return ClusterQueue({key: value for key, value in source.raw.items() if key != "status"})
