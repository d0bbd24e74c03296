"""The runs that the API server still has: from Kueue's Workloads, and the events of the last hour. Pure.

The last time with quota is exact to a second. Kueue keeps only the sum of the earlier ones
(status.accumulatedPastExecutionTimeSeconds); events show when they were, while the API server keeps them (an hour by
default).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from launcher.config.accelerators import CHIPS
from launcher.k8s import label_keys
from launcher.k8s.kueue.queues import LocalQueue
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import Object, parse_time, quantity
from launcher.products.fleet.model import Attempt, FleetRun, Wait

UNKNOWN_FLAVOR = "unknown"
"""The flavor of a run that had chips, but that Kueue has not assigned to a flavor now."""
_ADMITTED, _EVICTED = "Admitted", "EvictedDueTo"


def fleet_runs(
    workloads: Iterable[Workload], events: Iterable[Object], local_queues: Iterable[LocalQueue], now: float
) -> list[FleetRun]:
    """Return the runs with chips, oldest first. `events` are those of Workloads. Running attempts end at `now`."""
    of_workload: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for event in events:
        at = event.get("eventTime") or event.get("firstTimestamp")
        if at:
            of_workload[(event.get("involvedObject") or {}).get("uid") or ""].append(
                (parse_time(at).timestamp(), str(event.get("reason") or ""))
            )
    queues = {(queue.namespace, queue.name): queue for queue in local_queues}
    runs = [_run(workload, sorted(of_workload[workload.uid]), queues, now) for workload in workloads]
    return sorted((run for run in runs if run.chips), key=lambda run: (run.created, run.uid))


def _run(
    workload: Workload,
    events: Sequence[tuple[float, str]],
    queues: Mapping[tuple[str, str], LocalQueue],
    now: float,
) -> FleetRun:
    queue = queues.get((workload.namespace, workload.local_queue))
    created = parse_time(workload.created).timestamp()
    attempts = _attempts(workload, events, now)
    return FleetRun(
        uid=workload.label(label_keys.KUEUE_JOB_UID) or workload.uid,
        name=workload.owner,
        namespace=workload.namespace,
        team=(queue.label(label_keys.TEAM) if queue else "") or workload.namespace,
        queue=workload.cluster_queue or (queue.cluster_queue if queue else ""),
        state=_state(workload),
        created=created,
        chips=_chips(workload),
        attempts=attempts,
        waits=_waits(workload, attempts, created),
        priority=workload.priority_class,
        preemptions=workload.preemptions,
    )


def _attempts(workload: Workload, events: Sequence[tuple[float, str]], now: float) -> list[Attempt]:
    past = float(workload.status.get("accumulatedPastExecutionTimeSeconds") or 0)
    admitted, finished = workload.condition("Admitted"), workload.condition("Finished")
    ended = parse_time(finished.since).timestamp() if finished.is_true and finished.since else now
    attempts = []
    if admitted.is_true and admitted.since:
        start = parse_time(admitted.since).timestamp()
        attempts = [Attempt(start, max(start, ended))]
    if not past:
        return attempts
    until = attempts[0].start if attempts else ended
    seen = [attempt for attempt in _seen(events) if attempt.end <= until + 1]
    if len(seen) == workload.evictions:
        # The pods of an evicted run hold their quota until they have ended; only the sum has this time.
        ending = max(0.0, past - sum(attempt.end - attempt.start for attempt in seen)) / len(seen)
        return [*(replace(attempt, end=min(until, attempt.end + ending)) for attempt in seen), *attempts]
    times = [parse_time(since).timestamp() for since in (workload.condition("Requeued").since,) if since]
    end = min([until, *times])
    reason = "Preempted" if workload.preemptions else "Evicted"
    return [Attempt(end - past, end, reason, placed=False), *attempts]


def _seen(events: Sequence[tuple[float, str]]) -> list[Attempt]:
    """Return the attempts that ended with an eviction, by events, from the admission to the eviction."""
    attempts: list[Attempt] = []
    start = None
    for at, event in events:
        if event == _ADMITTED:
            start = at
        elif event.startswith(_EVICTED) and start is not None:
            attempts.append(Attempt(start, at, event.removeprefix(_EVICTED)))
            start = None
    return attempts


def _waits(workload: Workload, attempts: Sequence[Attempt], created: float) -> list[Wait]:
    """Return the times in the queue. The times between attempts are known if these are placed."""
    waits: list[Wait] = []
    since = created
    for attempt in attempts:
        waits += [Wait(min(since, attempt.start), attempt.start)] if attempt.placed or len(attempts) == 1 else []
        since = attempt.end
    if workload.is_queued:
        waits.append(Wait(since, None))
    return waits


def _state(workload: Workload) -> str:
    finished = workload.condition("Finished")
    if finished.is_true:
        return {"Succeeded": "succeeded", "Failed": "failed"}.get(finished.reason, "ended")
    return "running" if workload.is_true("Admitted") else "waiting" if workload.active else "stopped"


def _chips(workload: Workload) -> dict[str, int]:
    """Return the chips by flavor: of its last admission, or if it has none, those that it requests."""
    chips: defaultdict[str, int] = defaultdict(int)
    for entry in (workload.status.get("admission") or {}).get("podSetAssignments") or []:
        for resource, amount in (entry.get("resourceUsage") or {}).items():
            if resource in CHIPS:
                chips[(entry.get("flavors") or {}).get(resource) or UNKNOWN_FLAVOR] += int(quantity(amount))
    if not chips:
        for pods in workload.pod_sets:
            for resource, asked in pods.asks.items():
                if resource in CHIPS:
                    chips[UNKNOWN_FLAVOR] += int(asked)
    return {flavor: count for flavor, count in chips.items() if count}
