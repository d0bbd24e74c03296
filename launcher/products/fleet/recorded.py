"""The runs of records (launcher record), and one run of a record and a Workload of the same uid. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from launcher.products.fleet.model import Attempt, FleetRun, Slowness, Wait
from launcher.products.fleet.workloads import UNKNOWN_FLAVOR
from launcher.products.report.metrics import time_of

_NOT_LOST = ("total", "training")
# Seconds by which the clocks of the hosts and of the API server may differ.
_TOLERATED = 60.0


def of_record(record: Mapping[str, Any]) -> FleetRun | None:
    """Return the run of a record; None if it has no chips, or no object: a run of one machine is not of the fleet."""
    times, chips = record["times"], record.get("chips")
    created = time_of(times.get("submitted"))
    if not chips or created is None or record.get("kind") == "local":
        return None
    held = [(time_of(part["from"]) or 0.0, time_of(part["to"]) or 0.0) for part in record.get("held") or ()]
    attempts = _attempts(held, int(record.get("preemptions") or 0))
    waits = [
        Wait(since, attempt.start)
        for since, attempt in zip([created, *(attempt.end for attempt in attempts)], attempts, strict=False)
    ]
    seconds = record.get("seconds") or {}
    return FleetRun(
        uid=record["uid"] or f"{record.get('namespace') or ''}/{record['name']}/{times.get('submitted')}",
        name=record["name"],
        namespace=record.get("namespace") or "",
        team=record.get("team") or record.get("namespace") or "",
        queue=record.get("queue") or "",
        state=record["state"],
        created=created,
        chips={record.get("flavor") or UNKNOWN_FLAVOR: int(chips)},
        attempts=attempts,
        waits=waits,
        user=record.get("user") or "",
        preemptions=int(record.get("preemptions") or 0),
        steps=record.get("steps"),
        tokens=record.get("tokens"),
        goodput=record.get("goodput"),
        losses={cause: amount for cause, amount in seconds.items() if cause not in _NOT_LOST and amount > 0},
        slowness=_slowness((record.get("attempts") or [{}])[-1]),
    )


def _slowness(attempt: Mapping[str, Any]) -> Slowness | None:
    if attempt.get("ended"):
        return None
    since, step, forecast = (attempt.get(key) for key in ("slower_since", "step_seconds", "forecast_step_seconds"))
    slower = step / forecast - 1 if since and step and forecast else 0.0
    hosts = [row["message"] for row in attempt.get("slow_hosts") or ()]
    return Slowness(slower, time_of(since), hosts) if slower or hosts else None


def _attempts(held: Sequence[tuple[float, float]], preemptions: int) -> list[Attempt]:
    """Return the times with chips. A record does not say how each ended: the last `preemptions` before the last did
    with a preemption."""
    before = len(held) - 1
    return [
        Attempt(start, end, "Preempted" if before - preemptions <= number < before else "")
        for number, (start, end) in enumerate(held)
    ]


def contradiction(run: FleetRun, now: float) -> str:
    """Return the sentence about a record whose times are not in order or are after `now`, else ""."""
    times = [run.created, *(time for attempt in run.attempts for time in (attempt.start, attempt.end)), now]
    if all(later - earlier > -_TOLERATED for earlier, later in pairwise(times)):
        return ""
    name = f"{run.namespace}/{run.name}".removeprefix("/")
    return (
        f"The record of {name} has times that are not in order or in the future: a clock was wrong. Its hours and "
        "waits can be wrong, too."
    )


def joined(live: Iterable[FleetRun], recorded: Iterable[FleetRun]) -> list[FleetRun]:
    """Return each run once, oldest first.

    The API server knows the state and the last times exactly. The record adds the user, the goodput and the losses, and
    the times of earlier attempts if the API server has only their sum.
    """
    runs = {run.uid: run for run in recorded}
    for run in live:
        record = runs.get(run.uid)
        runs[run.uid] = run if record is None else _join(run, record)
    return sorted(runs.values(), key=lambda run: (run.created, run.uid))


def _join(live: FleetRun, record: FleetRun) -> FleetRun:
    last = [attempt for attempt in live.attempts if attempt.placed]
    attempts, waits = live.attempts, live.waits
    if len(last) < len(live.attempts):
        until = last[0].start if last else float("inf")
        earlier = [attempt for attempt in record.attempts if attempt.start < until - 1]
        if earlier:
            attempts = [*(replace(attempt, end=min(attempt.end, until)) for attempt in earlier), *last]
            waits = [*record.waits[: len(attempts)], *(wait for wait in live.waits if wait.end is None)]
    return replace(
        live,
        attempts=attempts,
        waits=waits,
        user=record.user,
        steps=record.steps,
        tokens=record.tokens,
        goodput=record.goodput,
        losses=record.losses,
        slowness=record.slowness if live.state == "running" else None,
    )
