"""Write a trace of the runs that a cluster has had: from its Workloads, the objects of its runs, and their folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from launcher import formatting
from launcher.k8s import label_keys
from launcher.k8s.kueue.queues import LocalQueue
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import parse_time, quantity
from launcher.products.planner.simulation import durations
from launcher.products.planner.simulation.cluster_state import ClusterState, job_uid
from launcher.products.planner.simulation.live_runs import accepted_flavors
from launcher.products.planner.simulation.run_folders import RunFolder
from launcher.products.report.folders import chips_of

Row = dict[str, Any]


@dataclass(frozen=True)
class RecordedTrace:
    """The rows of a trace, in the order of their arrival, and a sentence for each thing that is left out or assumed."""

    rows: Sequence[Row]
    notes: Sequence[str]


def record(
    state: ClusterState, seconds: float, folders: Sequence[RunFolder] = (), *, assumed: float, anonymous: bool
) -> RecordedTrace:
    """Return the runs that arrived in the last `seconds`, or that have or had quota then.

    `folders` are the folders of runs; those whose Workload exists add nothing. `assumed` is the time of a run that has
    not ended if nothing is known about it. With `anonymous`, runs, teams and queues have numbers instead of names.
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
    deleted = list(_deleted(folders, state, since))
    of_folders = [row for row in deleted if row is not None]
    rows = sorted([*rows, *of_folders], key=lambda row: str(row["arrives"]))
    unknown += len(deleted) - len(of_folders)
    if unfinished:
        notes.append(
            f"{unfinished} of the runs have not ended: their time is measured, forecast, their deadline, or "
            f"{formatting.duration(assumed)} (--assume)."
        )
    if unstarted:
        notes.append(f"{unstarted} runs ended without quota, and are left out.")
    if unknown:
        notes.append(f"{unknown} runs without chips, or of queues that do not exist, are left out.")
    if of_folders:
        notes.append(
            f"{len(of_folders)} runs whose Workload no longer exists are from their folders, which have neither the "
            "time of their submission nor the requests of their head: they arrive at their first start."
        )
    notes.append("Deleted runs whose folder was not read, or that never started, are not in the trace.")
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
        deadline=durations.deadline_of(obj, workload),
        held=max(0.0, held),
        assumed=assumed,
    )
    return before + max(0.0, held) + left.seconds


def _deleted(folders: Sequence[RunFolder], state: ClusterState, since: datetime) -> Iterator[Row | None]:
    """Yield a row for each run in a folder whose Workload no longer exists; None if its queue or chips are unknown."""
    created: dict[tuple[str, str], datetime] = {}
    for workload in state.workloads:
        obj = state.runs.get(job_uid(workload))
        times = [parse_time(workload.created), *([parse_time(obj.created)] if obj is not None else [])]
        key = workload.namespace, workload.owner
        created[key] = min([*times, created.get(key, state.now)])
    names: Counter[str] = Counter()
    seen: set[tuple[str, str, datetime]] = set()
    for folder in folders:
        if not state.all_visible and folder.namespace != state.namespace:
            continue  # its Workload may exist
        # A run that was submitted again has the same folder: what began before is of the deleted Workload.
        until = created.get((folder.namespace, folder.name))
        held = [(start, end) for start, end in folder.held if until is None or start < until]
        if not held or max(end for _, end in held) < since:
            continue
        known = folder.namespace, folder.name, held[0][0]
        if known in seen:  # a copy
            continue
        seen.add(known)
        name = f"{folder.namespace}/{folder.name}"
        names[name] += 1
        yield _row_of_folder(f"{name}/folder-{names[name]}", folder, held, state)


def _row_of_folder(
    name: str, folder: RunFolder, held: Sequence[tuple[datetime, datetime]], state: ClusterState
) -> Row | None:
    local = state.local_queues.get((folder.namespace, folder.local_queue))
    if local is None or local.cluster_queue not in state.platform.queue_names:
        return None
    slice_ = folder.config.get("slice") or {}
    alternatives = slice_.get("any")
    items = [item for item in alternatives if isinstance(item, Mapping)] if isinstance(alternatives, list) else []
    ways = {str({**slice_, **item}.get("provisioning") or "on-demand") for item in items or [{}]}
    row = folder.config.get("accelerator") or {}
    accepted = sorted(
        flavor.name
        for flavor in state.platform.flavors.values()
        if flavor.has_chips
        and flavor.accelerator == row.get("name")
        and row.get("topology") in (None, "", flavor.topology)
        and (flavor.provisioning in ways or ("on-demand" in ways and flavor.accepts_any_run))
    )
    chips = chips_of(folder.config)
    if not accepted or chips is None or chips < 1:
        return None
    every = durations.checkpoint_seconds(folder.config, folder.step_seconds)
    return {
        "name": name,
        **_owner(local, state),
        "flavors": accepted,
        "chips": chips,
        **({"priority": folder.priority_class} if folder.priority_class in state.platform.priorities else {}),
        "arrives": _time(min(start for start, _ in held)),
        "lasts": max(1, round(sum((end - start).total_seconds() for start, end in held))),
        **({"checkpointEvery": round(every)} if every and every >= 0.5 else {}),
    }


def _owner(local: LocalQueue, state: ClusterState) -> Row:
    """Return the team of a LocalQueue, or its ClusterQueue if the team is not known."""
    team = local.label(label_keys.TEAM) or local.namespace
    known = state.platform.teams.get(team)
    return (
        {"team": team} if known is not None and known.queue == local.cluster_queue else {"queue": local.cluster_queue}
    )


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
    anonymous = []
    for number, row in enumerate(rows, start=1):
        changed = {**row, "name": f"run-{number}"}
        for key in ("team", "queue"):
            if key in row:
                same = sum(kind == key for kind, _ in numbers)
                changed[key] = f"{key}-{numbers.setdefault((key, row[key]), same + 1)}"
        anonymous.append(changed)
    return anonymous
