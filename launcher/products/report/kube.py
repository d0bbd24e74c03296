"""When a run on a cluster waited and when it had its chips: from its Workload, its object, and the Events of both.

A condition keeps only its last change. An Event is kept for an hour (unless the API server is configured otherwise).
Anything that neither records any more is reported as missing, not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from launcher.backends.kubernetes.states import ObservedRun
from launcher.k8s import objects
from launcher.products.report.metrics import time_of
from launcher.products.report.model import Mark, Phase
from launcher.products.report.timeline import ChipsHeld, PhaseChange

# A condition's time has whole seconds, an Event's is finer. Times this close are the same change.
_SAME = 2.0
_EVICTED = "EvictedDueTo"
# The marks of a run, by the reason of the Event: a word or two, and whether it is bad.
_WORDS: Mapping[str, tuple[str, bool]] = {
    "CreatedWorkload": ("queued", False),
    "Admitted": ("admitted", False),
    "Preempted": ("preempted", True),
    "RestartJobSetFailurePolicyAction": ("restarts", True),
    "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction": ("pods created again", False),
    "RestartJobFailurePolicyAction": ("a slice restarts", True),
    "RestartJobAndIgnoreMaxRestartsFailurePolicyAction": ("pods of a slice created again", False),
    "JobsReady": ("pods ready again", False),
    "ReachedMaxRestarts": ("no restarts left", True),
    "JobSetFailed": ("failed", True),
    "AllJobsCompleted": ("completed", False),
    "CreatedRayCluster": ("Ray cluster created", False),
    "DeletedRayCluster": ("Ray cluster deleted", False),
    "FailedToCreateRayCluster": ("Ray cluster not created", True),
    "FinishedWorkload": ("finished", False),
}
# The second one is a preemption. JobSet does not report when a slice is ready again, so those restarts are only marks.
_RESTARTS = ("RestartJobSetFailurePolicyAction", "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction")


@dataclass(frozen=True)
class History:
    """`held` are the times with chips, `changes` the phases by pods and JobSet, `marks` the events."""

    held: Sequence[ChipsHeld]
    changes: Sequence[PhaseChange]
    marks: Sequence[Mark]
    missing: Sequence[str]


def history(seen: ObservedRun, events: Iterable[Mapping[str, object]], end: float) -> History:
    """Return the history of a run up to `end`, the time when it ended or was read.

    `events` are core/v1 Events of its Workload and of its object. Others are ignored.
    """
    reported = sorted(_kueue_events(seen, events), key=lambda event: event.at)
    if not seen.queued:
        begin = _begin_without_queue(seen)
        held = [] if begin is None else [ChipsHeld(begin, end)]
        return History(held, _changes(seen, reported), _marks(reported), [])
    held, missing = _held(seen, reported, end)
    return History(held, _changes(seen, reported), _marks(reported), missing)


@dataclass(frozen=True)
class _Event:
    at: float
    kind: str
    reason: str
    message: str


def _kueue_events(seen: ObservedRun, events: Iterable[Mapping[str, object]]) -> list[_Event]:
    uids = {seen.run.uid, *([seen.workload.uid] if seen.workload is not None else [])}
    in_order: dict[_Event, None] = {}
    for event in events:
        of = event.get("involvedObject")
        at = (
            time_of(event.get("eventTime"))
            or time_of(event.get("lastTimestamp"))
            or time_of(event.get("firstTimestamp"))
        )
        if isinstance(of, Mapping) and of.get("uid") in uids and at is not None:
            kueue_event = _Event(at, str(of.get("kind")), str(event.get("reason")), str(event.get("message") or ""))
            in_order[kueue_event] = None
    return list(in_order)


def _held(seen: ObservedRun, reported: Sequence[_Event], end: float) -> tuple[list[ChipsHeld], list[str]]:
    """Return the times from each admission to the next eviction or the end, and sentences on what is missing."""
    workload = seen.workload
    admitted = [event.at for event in reported if event.kind == "Workload" and event.reason == "Admitted"]
    evicted = [
        (event.at, Phase.PREEMPTED if "Preempted" in event.reason else Phase.QUEUED)
        for event in reported
        if event.kind == "Workload" and event.reason.startswith(_EVICTED)
    ]
    _add_condition(admitted, seen, "Admitted")
    last = seen.workload_condition("Evicted")
    if last.is_true:
        evicted = _with(evicted, time_of(last.since), last.reason)
    requeued = seen.workload_condition("Requeued")
    if requeued.reason in ("Preempted", "PodsReadyTimeout", "NodeFailures", "AdmissionCheck"):
        # Set when the Workload was requeued, right after its eviction.
        evicted = _with(evicted, time_of(requeued.since), requeued.reason)
    held: list[ChipsHeld] = []
    missing = []
    unknown = 0
    begin: float | None = None
    for at, after in sorted([*((at, None) for at in admitted), *evicted], key=lambda change: change[0]):
        if after is None:
            begin = at if begin is None else begin
        elif begin is not None:
            held.append(ChipsHeld(begin, at, after))
            begin = None
        else:
            unknown += 1
    if begin is not None:
        held.append(ChipsHeld(begin, end))
    counted = workload.evictions if workload else 0
    gone = max(unknown, counted - len(held) + (begin is not None))
    if gone > 0:
        missing.append(
            f"The times when it had its chips before {gone} of its evictions are no longer known: the cluster keeps "
            "Events for about an hour, and conditions show only the last eviction."
        )
    if workload is None and not held:
        missing.append(
            "Its Workload no longer exists, so the times when it waited and when it had its chips are not known."
        )
    return held, missing


def _with(evicted: Sequence[tuple[float, Phase]], at: float | None, reason: str) -> list[tuple[float, Phase]]:
    if at is None or any(abs(at - other) < _SAME for other, _ in evicted):
        return list(evicted)
    return [*evicted, (at, Phase.PREEMPTED if reason == "Preempted" else Phase.QUEUED)]


def _add_condition(times: list[float], seen: ObservedRun, kind: str) -> None:
    if not seen.workload_condition(kind).is_true:
        return
    at = time_of(seen.workload_condition(kind).since)
    if at is not None and not any(abs(at - other) < _SAME for other in times):
        times.append(at)


def _begin_without_queue(seen: ObservedRun) -> float | None:
    if seen.run.suspended:
        return None
    return time_of(objects.status(seen.run.raw).get("startTime")) or time_of(seen.run.created)


def _changes(seen: ObservedRun, reported: Sequence[_Event]) -> list[PhaseChange]:
    """Return phases from ready pods (training) and JobSet restarts. They are coarser than the trainer's events."""
    changes = []
    ready = seen.workload_condition("PodsReady")
    at = time_of(ready.since)
    if at is not None and ready.reason in ("Started", "Recovered", "WaitForRecovery"):
        changes.append(PhaseChange(at, Phase.RESTARTING if ready.reason == "WaitForRecovery" else Phase.TRAINING))
    for event in reported:
        if event.reason in _RESTARTS:
            changes.append(PhaseChange(event.at, Phase.RESTARTING))
        elif event.reason == "JobsReady":
            changes.append(PhaseChange(event.at, Phase.TRAINING))
    again = seen.run.condition("RestartingJobSet")
    at = time_of(again.since)
    if at is not None and (again.reason == "JobsReady" or again.is_true):
        changes.append(PhaseChange(at, Phase.TRAINING if again.is_false else Phase.RESTARTING))
    began = time_of(seen.run.ray_job.started) if seen.ray else None
    if began is not None:
        changes.append(PhaseChange(began, Phase.TRAINING))
    return changes


def _marks(reported: Sequence[_Event]) -> list[Mark]:
    marks = []
    for event in reported:
        says = re.sub(r" \(UID: [^)]*\)", "", event.message).partition("; preemptor path:")[0]
        if event.reason.startswith(_EVICTED):
            if "Preempted" not in event.reason:
                marks.append(Mark(event.at, "evicted", says, bad=True))
        elif event.reason in _WORDS and (event.kind == "Workload") == (event.reason in ("Admitted", "Preempted")):
            what, bad = _WORDS[event.reason]
            marks.append(Mark(event.at, what, says, bad))
    return marks
