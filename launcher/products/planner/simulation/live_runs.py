"""The runs of a cluster as jobs: from their Workloads, and from the use of queues whose Workloads RBAC hides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from launcher import formatting
from launcher.k8s import label_keys
from launcher.k8s.kueue.queues import ClusterQueue, FlavorResource
from launcher.k8s.kueue.workloads import Workload, mismatch
from launcher.k8s.objects import parse_time, quantity, seconds_since
from launcher.products.planner.scheduler.model import Holding, Job, PodSetRequest
from launcher.products.planner.simulation import durations
from launcher.products.planner.simulation.cluster_state import ClusterState, job_uid
from launcher.products.planner.simulation.durations import Duration, Source
from launcher.products.planner.simulation.platform import Platform

_RANK = 1e-6  # seconds between the arrivals of two runs that wait now: only their order matters
_HIGHEST = 2**31 - 1  # the priority of hidden runs with quota: no run preempts them by its priority


@dataclass(frozen=True)
class LiveRun:
    """A run of the cluster as a job. `mine`: it is in the user's namespace, or all namespaces are selected.

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


def live_runs(state: ClusterState, assumed: float) -> tuple[dict[str, LiveRun], list[str]]:
    """Return the runs of a cluster by the name of their job, and what is assumed about them.

    `assumed` is the time of a run about which nothing is known, in seconds.
    """
    runs: dict[str, LiveRun] = {}
    notes: list[str] = []
    known = {queue.name for queue in state.queues}
    waiting = [workload for workload in state.workloads if _waits(workload)]
    holding = [workload for workload in state.workloads if workload.has_quota and not workload.is_true("Finished")]
    for workload in holding:
        if workload.cluster_queue in known:
            _add(runs, _holder(workload, state, assumed), workload)
    waiting.sort(key=lambda workload: (workload.queued_at, workload.uid))
    for rank, workload in enumerate(waiting):
        local = state.local_queues.get((workload.namespace, workload.local_queue))
        queue = local.cluster_queue if local else ""
        if queue in known and local is not None:
            stopped = f"the LocalQueue {local.name} is stopped" if local.stopped else ""
            _add(runs, _waiter(workload, queue, rank * _RANK, state, assumed, stopped), workload)
        elif state.selects(workload.namespace):
            notes.append(f"{workload.owner} waits in a queue that does not exist ({workload.local_queue or 'none'}).")
    for cluster_queue in sorted(state.queues, key=lambda cluster_queue: cluster_queue.name):
        hidden = list(_hidden(cluster_queue, runs, state, assumed, notes))
        runs.update({run.job.name: run for run in hidden})
    return runs, notes


def _add(runs: dict[str, LiveRun], run: LiveRun, workload: Workload) -> None:
    """Add a run. A Job and a JobSet can have the same name; the second one gets that of its Workload in addition."""
    if run.job.name in runs:
        run = replace(run, job=replace(run.job, name=f"{run.job.name} ({workload.name})"))
    runs[run.job.name] = run


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
    duration = durations.time_left(
        status=status,
        config=config,
        deadline=durations.deadline_of(obj, workload),
        held=held,
        assumed=assumed,
    )
    mine = state.selects(workload.namespace)
    local = state.local_queues.get((workload.namespace, workload.local_queue))
    team = (obj.team if obj is not None else "") or (local.label(label_keys.TEAM) if local else "")
    name = obj.name if obj is not None else workload.owner
    job = Job(
        name=name if workload.namespace == state.namespace else f"{workload.namespace}/{name}",
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
