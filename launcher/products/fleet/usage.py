"""The use of the fleet in a period: chip-hours, waits, goodput and cost, by team, flavor and user. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from launcher.products.fleet.model import FleetRun, Period
from launcher.products.fleet.prices import Price, Prices

_HOUR = 3600.0


@dataclass(frozen=True)
class Gap:
    """A part of the period for which nothing is known, and why, as a clause."""

    start: float
    end: float
    why: str


@dataclass(frozen=True)
class RunUse:
    """The use of a run in the period. Hours are chip-hours; `cost` is None if the price of a flavor is not known.

    `preempted_hours` are those of attempts that Kueue ended before the run did. `approximate` is True if the times of
    an earlier attempt are not known, only their sum.
    """

    run: FleetRun
    chip_hours: Mapping[str, float]
    preempted_hours: float
    waited: float
    cost: float | None
    approximate: bool

    @property
    def hours(self) -> float:
        return sum(self.chip_hours.values())


@dataclass(frozen=True)
class GroupUse:
    """The runs of a team, a user or a flavor together. Waits are in seconds, of the runs that started in the period.

    `goodput` is the mean of the runs with a record, weighted by their chip-hours; `recorded_hours` are theirs.
    `lost` are the chip-hours of these runs that became no training, by cause. `unpriced_hours` are not in `cost`.
    """

    name: str
    runs: int
    chip_hours: float
    share: float
    wait_median: float | None
    wait_p95: float | None
    waiting: int
    preemptions: int
    preempted_hours: float
    goodput: float | None
    recorded_hours: float
    lost: Mapping[str, float]
    cost: float
    unpriced_hours: float


@dataclass(frozen=True)
class FlavorUse:
    """A flavor: its chip-hours, and the quota of now over the whole period. `idle_hours` is None without quota."""

    name: str
    chips: int
    chip_hours: float
    quota_hours: float | None
    idle_hours: float | None
    price: Price | None
    cost: float | None


@dataclass(frozen=True)
class FleetUse:
    """The use of the fleet in a period. `marks` are sentences about what is not known."""

    period: Period
    currency: str
    runs: Sequence[RunUse]
    teams: Sequence[GroupUse]
    users: Sequence[GroupUse]
    flavors: Sequence[FlavorUse]
    total: GroupUse
    gaps: Sequence[Gap]
    marks: Sequence[str]


def use(
    runs: Iterable[FleetRun],
    period: Period,
    prices: Prices,
    quotas: Mapping[str, int],
    *,
    gaps: Sequence[Gap] = (),
    marks: Sequence[str] = (),
) -> FleetUse:
    """Return the use of the period by these runs. `quotas` are the chips of each flavor now."""
    every = [row for run in runs if (row := _run(run, period, prices)) is not None]
    every.sort(key=lambda row: (-row.hours, row.run.namespace, row.run.name))
    hours = sum(row.hours for row in every)
    known = sum(gap.end - gap.start for gap in gaps)
    flavors = [
        _flavor(name, every, quotas.get(name), period.end - period.start - known, prices)
        for name in sorted({*quotas, *(name for row in every for name in row.chip_hours)})
    ]
    sentences = [*marks]
    if approximate := [row for row in every if row.approximate]:
        sentences.append(
            f"{_runs(len(approximate))} had earlier attempts of which only the total time is known: it is placed "
            "before the last eviction."
        )
    if unpriced := sorted({flavor for row in every for flavor in row.chip_hours if prices.of(flavor) is None}):
        sentences.append(
            f"No price is known for {', '.join(unpriced)}; set fleet.flavors.{unpriced[0]}.perChipHour in a file "
            "for -f."
        )
    if unknown := [row for row in every if row.run.goodput is None and row.hours]:
        sentences.append(f"{_runs(len(unknown))} without a record: goodput and losses are those of the others.")
    return FleetUse(
        period,
        prices.currency,
        every,
        _groups(every, period, hours, lambda run: run.team),
        _groups(every, period, hours, lambda run: run.user or "unknown"),
        flavors,
        _group("total", every, period, hours),
        gaps,
        sentences,
    )


def as_json(fleet: FleetUse) -> dict[str, Any]:
    """Return the use as plain data, with the runs' own fields next to their use."""
    runs = [{**vars(row.run), **vars(row), "hours": row.hours} for row in fleet.runs]
    for row in runs:
        del row["run"]
    return {**vars(fleet), "runs": runs}


def _run(run: FleetRun, period: Period, prices: Prices) -> RunUse | None:
    """Return what the run had in the period; None if it neither had chips nor waited then."""
    seconds = preempted = 0.0
    placed = True
    for attempt, held in run.held(period):
        seconds += held
        placed = placed and attempt.placed
        preempted += held if attempt.evicted == "Preempted" else 0.0
    waited = sum(period.overlap(wait.start, period.end if wait.end is None else wait.end) for wait in run.waits)
    if not seconds and not waited:
        return None
    chip_hours = {flavor: chips * seconds / _HOUR for flavor, chips in run.chips.items()} if seconds else {}
    charged = seconds if prices.charges_preempted else seconds - preempted
    costs = [prices.cost(flavor, chips * charged / _HOUR) for flavor, chips in run.chips.items()] if seconds else []
    known = [cost for cost in costs if cost is not None]
    return RunUse(
        run,
        chip_hours,
        preempted * run.total_chips / _HOUR,
        waited,
        sum(known) if len(known) == len(costs) else None,
        not placed,
    )


def _groups(rows: Sequence[RunUse], period: Period, hours: float, name: Callable[[FleetRun], str]) -> list[GroupUse]:
    by_name: defaultdict[str, list[RunUse]] = defaultdict(list)
    for row in rows:
        by_name[name(row.run)].append(row)
    groups = [_group(group, members, period, hours) for group, members in by_name.items()]
    return sorted(groups, key=lambda group: (-group.chip_hours, group.name))


def _group(name: str, rows: Sequence[RunUse], period: Period, hours: float) -> GroupUse:
    own = sum(row.hours for row in rows)
    waits = [
        wait.end - wait.start
        for row in rows
        for wait in row.run.waits
        if wait.end is not None and period.start <= wait.end <= period.end
    ]
    recorded = [row for row in rows if row.run.goodput is not None and row.hours]
    recorded_hours = sum(row.hours for row in recorded)
    lost: defaultdict[str, float] = defaultdict(float)
    for row in recorded:
        whole = sum(row.run.losses.values()) or 1.0
        for cause, seconds in row.run.losses.items():
            lost[cause] += row.hours * (1 - (row.run.goodput or 0.0)) * seconds / whole
    goodput = sum(row.hours * (row.run.goodput or 0.0) for row in recorded)
    return GroupUse(
        name=name,
        runs=len(rows),
        chip_hours=own,
        share=own / hours if hours else 0.0,
        wait_median=median(waits) if waits else None,
        wait_p95=percentile_95(waits),
        waiting=sum(any(wait.end is None for wait in row.run.waits) for row in rows),
        preemptions=sum(row.run.preemptions for row in rows),
        preempted_hours=sum(row.preempted_hours for row in rows),
        goodput=goodput / recorded_hours if recorded_hours else None,
        recorded_hours=recorded_hours,
        lost=dict(lost),
        cost=sum(row.cost or 0.0 for row in rows),
        unpriced_hours=sum(row.hours for row in rows if row.cost is None),
    )


def percentile_95(values: Sequence[float]) -> float | None:
    """Return the 95th percentile with linear interpolation; None without values."""
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=20, method="inclusive")[-1]


def _flavor(name: str, rows: Sequence[RunUse], chips: int | None, seconds: float, prices: Prices) -> FlavorUse:
    hours = sum(row.chip_hours.get(name, 0.0) for row in rows)
    quota = None if chips is None else chips * seconds / _HOUR
    return FlavorUse(
        name,
        chips or 0,
        hours,
        quota,
        None if quota is None else max(0.0, quota - hours),
        prices.of(name),
        prices.cost(name, hours),
    )


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
