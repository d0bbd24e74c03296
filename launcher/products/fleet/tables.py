"""The tables of a fleet, which the text and the page share. A column is its title, and "number" or "" for a text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from launcher import formatting
from launcher.products.fleet.usage import FlavorUse, FleetUse, GroupUse, RunUse

Column = tuple[str, str]
Table = tuple[Sequence[Column], Sequence[Sequence[str]]]
_UNKNOWN = "-"
MOST_RUNS = 20


def groups(title: str, rows: Sequence[GroupUse], fleet: FleetUse) -> Table:
    """Return the table of teams or users; with several rows, the last is the sum."""
    columns = [
        (title, ""),
        ("runs", "number"),
        ("chip-hours", "number"),
        ("share", "number"),
        ("wait median", "number"),
        ("wait p95", "number"),
        ("waiting", "number"),
        ("preempted", "number"),
        ("preempted chip-hours", "number"),
        ("goodput", "number"),
        (f"cost {fleet.currency}", "number"),
    ]
    shown = [*rows, fleet.total] if len(rows) > 1 else rows
    return columns, [
        [
            row.name,
            f"{row.runs:,}",
            hours(row.chip_hours),
            f"{row.share:.1%}",
            _duration(row.wait_median),
            _duration(row.wait_p95),
            f"{row.waiting:,}",
            f"{row.preemptions:,}",
            hours(row.preempted_hours),
            _share(row.goodput),
            _cost(row.cost, row.unpriced_hours),
        ]
        for row in shown
    ]


def flavors(rows: Sequence[FlavorUse], fleet: FleetUse) -> Table:
    """Return the table of flavors: chip-hours against the quota."""
    columns = [
        ("flavor", ""),
        ("quota", "number"),
        ("chip-hours", "number"),
        ("used", "number"),
        ("idle chip-hours", "number"),
        ("price", "number"),
        (f"cost {fleet.currency}", "number"),
    ]
    return columns, [
        [
            row.name,
            f"{row.chips:,} chips" if row.quota_hours is not None else _UNKNOWN,
            hours(row.chip_hours),
            _share(row.chip_hours / row.quota_hours if row.quota_hours else None),
            _UNKNOWN if row.idle_hours is None else hours(row.idle_hours),
            _UNKNOWN if row.price is None else f"{row.price.per_chip_hour:g}",
            _cost(row.cost, 0.0),
        ]
        for row in rows
    ]


def losses(fleet: FleetUse) -> Table:
    """Return the chip-hours that became no training, by cause, of the runs with a record. The largest is first."""
    lost = sorted(fleet.total.lost.items(), key=lambda item: -item[1])
    return [("lost to", ""), ("chip-hours", "number")], [[cause, hours(amount)] for cause, amount in lost]


def slow_runs(rows: Sequence[RunUse], zone: ZoneInfo) -> Table:
    """Return the runs that are slower than their forecast, or have a slow host, the slowest first."""
    slow = [(row.run, row.run.slowness) for row in rows if row.run.slowness is not None]
    slow.sort(key=lambda pair: -pair[1].slower)
    columns = [("slow run", ""), ("team", ""), ("slower than its forecast", "number"), ("since", ""), ("hosts", "")]
    return columns, [
        [
            run.name,
            run.team,
            f"{slowness.slower:.0%}" if slowness.slower else _UNKNOWN,
            _UNKNOWN if slowness.since is None else clock(slowness.since, zone),
            " ".join(slowness.hosts) or _UNKNOWN,
        ]
        for run, slowness in slow
    ]


def runs(rows: Sequence[RunUse], fleet: FleetUse) -> Table:
    """Return the table of the runs with the most chip-hours."""
    columns = [
        ("run", ""),
        ("team", ""),
        ("user", ""),
        ("state", ""),
        ("chips", "number"),
        ("chip-hours", "number"),
        ("waited", "number"),
        ("preempted", "number"),
        ("goodput", "number"),
        (f"cost {fleet.currency}", "number"),
    ]
    return columns, [
        [
            row.run.name,
            row.run.team,
            row.run.user or _UNKNOWN,
            row.run.state,
            f"{row.run.total_chips:,}",
            ("~" if row.approximate else "") + hours(row.hours),
            _duration(row.waited),
            f"{row.run.preemptions:,}",
            _share(row.run.goodput),
            _UNKNOWN if row.cost is None else f"{row.cost:,.2f}",
        ]
        for row in rows[:MOST_RUNS]
    ]


def marks(fleet: FleetUse, zone: ZoneInfo) -> list[str]:
    """Return a sentence for each thing that is not known, those about times without data first."""
    gaps = [f"No data from {clock(gap.start, zone)} to {clock(gap.end, zone)}: {gap.why}." for gap in fleet.gaps]
    return [*gaps, *fleet.marks]


def title(fleet: FleetUse, zone: ZoneInfo) -> str:
    return f"From {clock(fleet.period.start, zone)} to {clock(fleet.period.end, zone)} ({zone.key})"


def clock(at: float, zone: ZoneInfo) -> str:
    return f"{datetime.fromtimestamp(at, zone):%Y-%m-%d %H:%M}"


def hours(value: float) -> str:
    return f"{value:,.1f}"


def _duration(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else formatting.duration(seconds)


def _share(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1%}"


def _cost(cost: float | None, unpriced_hours: float) -> str:
    if cost is None:
        return _UNKNOWN
    return f"{cost:,.2f}" + (" + unknown" if unpriced_hours else "")
