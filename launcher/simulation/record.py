"""Write a trace of the runs that a cluster has had: from its Workloads and the objects of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from launcher import formatting
from launcher.k8s import label_keys
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import parse_time, quantity
from launcher.simulation import durations
from launcher.simulation.cluster_state import ClusterState, job_uid
from launcher.simulation.live import accepted_flavors

Row = dict[str, Any]


@dataclass(frozen=True)
class RecordedTrace:
    """The rows of a trace, in the order of their arrival, and a sentence for each thing that is left out or assumed."""

    rows: Sequence[Row]
    notes: Sequence[str]


def record(state: ClusterState, seconds: float, *, assumed: float, anonymous: bool) -> RecordedTrace:
    """Return the runs that arrived in the last `seconds`, or that have or had quota then.

    `assumed` is the time of a run that has not ended if nothing is known about it. With `anonymous`, runs, teams and
    queues have numbers instead of names.
    """
    since = state.now - timedelta(seconds=seconds)
    notes = [] if state.all_visible else ["The trace has only the runs of your namespace: you may not read the others."]
    rows: list[Row] = []
    unstarted, unknown, unfinished = 0, 0, 0
    for workload in sorted(state.workloads, key=lambda workload: (workload.created, workload.uid)):
        ended = workload.condition("Finished")
        if ended.is_true and ended.since and parse_time(ended.since) < since:
            continue
        lasts = _lasts(workload, state, assumed)
        if lasts is None:
            unstarted += 1
            continue
        queue = _queue(workload, state)
        request = _request(workload, state)
        if not queue or request is None:
            unknown += 1
            continue
        unfinished += not ended.is_true
        rows.append(_row(workload, queue, request, lasts, state))
    if unfinished:
        notes.append(
            f"{unfinished} of the runs have not ended: their time is measured, forecast, their deadline, or "
            f"{formatting.duration(assumed)} (--assume)."
        )
    if unstarted:
        notes.append(f"{unstarted} runs ended without quota, and are left out.")
    if unknown:
        notes.append(f"{unknown} runs without chips, or of queues that do not exist, are left out.")
    notes.append("Runs that were deleted with their Workload are not in the trace.")
    return RecordedTrace(_anonymous(rows) if anonymous else rows, notes)


def _lasts(workload: Workload, state: ClusterState, assumed: float) -> float | None:
    """Return for how long a run has quota until its end; None if it ended without quota."""
    before = float(workload.status.get("accumulatedPastExecutionTimeSeconds") or 0)
    admitted, ended = workload.condition("Admitted"), workload.condition("Finished")
    started = admitted if admitted.is_true else workload.reserved
    if ended.is_true:
        if not (started.is_true and started.since and ended.since):
            return None
        return before + max(0.0, (parse_time(ended.since) - parse_time(started.since)).total_seconds())
    obj = state.runs.get(job_uid(workload))
    held = (state.now - parse_time(started.since)).total_seconds() if started.is_true and started.since else 0.0
    left = durations.time_left(
        status=state.statuses.get(job_uid(workload)),
        config=obj.config if obj is not None else {},
        deadline=durations.deadline_of(
            obj.raw if obj is not None else {}, workload.spec.get("maximumExecutionTimeSeconds")
        ),
        held=max(0.0, held),
        assumed=assumed,
    )
    return before + max(0.0, held) + left.seconds


def _queue(workload: Workload, state: ClusterState) -> str:
    local = state.local_queues.get((workload.namespace, workload.local_queue))
    queue = workload.cluster_queue or (local.cluster_queue if local is not None else "")
    return queue if queue in state.platform.queue_names else ""


def _request(workload: Workload, state: ClusterState) -> Row | None:
    """Return the keys of a row that describe what a run requests; None if it has no chips, or several kinds."""
    flavors = state.platform.flavors
    accepted: set[str] = set()
    chips, others = Decimal(), {"cpu": Decimal(), "memory": Decimal()}
    assigned = {
        str(entry["name"]): entry for entry in (workload.status.get("admission") or {}).get("podSetAssignments") or []
    }
    for pod_set in workload.pod_sets:
        entry = assigned.get(pod_set.name) or {}
        usage = {resource: quantity(amount) for resource, amount in (entry.get("resourceUsage") or {}).items()}
        amounts = usage or pod_set.asks
        of_chips = [resource for resource in amounts if any(each.resource == resource for each in flavors.values())]
        for resource in of_chips:
            chips += amounts[resource]
            names = accepted_flavors(workload, pod_set.name, state.platform)
            if names is None:
                names = frozenset(filter(None, [(entry.get("flavors") or {}).get(resource)]))
            accepted |= {name for name in names if name in flavors and flavors[name].resource == resource}
        if not of_chips:
            for resource in others:
                others[resource] += amounts.get(resource, Decimal())
    if not chips or not accepted:
        return None
    return {
        "flavors": sorted(accepted),
        "chips": int(chips),
        **{resource: f"{amount.normalize():f}" for resource, amount in others.items() if amount},
    }


def _row(workload: Workload, queue: str, request: Row, lasts: float, state: ClusterState) -> Row:
    local = state.local_queues.get((workload.namespace, workload.local_queue))
    team = (local.label(label_keys.TEAM) or local.namespace) if local is not None else ""
    known = state.platform.teams.get(team)
    obj, status = state.runs.get(job_uid(workload)), state.statuses.get(job_uid(workload))
    config: Mapping[str, Any] = obj.config if obj is not None else {}
    every = durations.checkpoint_seconds(config, durations.step_seconds(status, config))
    named = workload.priority_class
    row: Row = {
        "name": f"{workload.namespace}/{workload.owner}/{workload.uid[:5]}",
        **({"team": team} if known is not None and known.queue == queue else {"queue": queue}),
        **request,
        "priority": named if state.platform.priorities.get(named) == workload.priority else workload.priority,
        "arrives": _time(parse_time(workload.created)),
        "lasts": round(lasts),
    }
    return {**row, "checkpointEvery": round(every)} if every else row


def _time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _anonymous(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with numbers instead of the names of runs, teams and queues. A team has one number."""
    numbers: dict[tuple[str, str], int] = {}
    found = []
    for number, row in enumerate(rows, start=1):
        changed = {**row, "name": f"run-{number}"}
        for key in ("team", "queue"):
            if key in row:
                same = sum(kind == key for kind, _ in numbers)
                changed[key] = f"{key}-{numbers.setdefault((key, row[key]), same + 1)}"
        found.append(changed)
    return found
