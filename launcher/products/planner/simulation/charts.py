"""The charts of a simulation: slices by flavor over time, and the runs that wait. Drawn as the charts of a report.

A team has the tag "run N", by which the page colours, shows and hides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from bokeh.models import BasicTickFormatter, ColumnDataSource, DataRange1d, NumeralTickFormatter, Quad, Range1d

from launcher import formatting
from launcher.products.planner.simulation.simulated import Simulated, held_seconds
from launcher.products.report.charts import Chart, Shared, add_axes, add_line, hover_tool, new_plot, tag_of, time_unit

MOST_BARS = 4_000
_MOST_FLAVORS = 6
_GAP = 0.06  # of a lane's height, between two bars
_LANE = 16  # pixels
_HEIGHTS = (160, 480)


@dataclass(frozen=True, slots=True)
class Bar:
    """A time in which a run holds some lanes of a flavor, from `low` up to but not including `high`."""

    run: str
    team: str
    start: float
    end: float
    low: int
    high: int
    evicted: bool


@dataclass(frozen=True)
class Lanes:
    """The bars of a flavor. A lane is a slice, or a chip if the flavor's slices are not known."""

    flavor: str
    unit: str
    count: int
    bars: Sequence[Bar]
    left_out: int = 0


def charts(simulations: Sequence[tuple[str, Simulated]], teams: Sequence[str]) -> list[Chart]:
    """Return the charts of one simulation, or of two, with their titles ("Before", "After"). They zoom together."""
    ends = max(simulated.ends for _, simulated in simulations)
    unit, seconds = time_unit(ends)
    times = DataRange1d(start=0, end=max(1.02 * ends / seconds, 1e-9))
    share = Shared()
    of = [f" {title.lower()}" if len(simulations) > 1 else "" for title, _ in simulations]
    drawn = [{lanes.flavor: lanes for lanes in all_lanes(simulated, ends)} for _, simulated in simulations]
    flavors = sorted({flavor for each in drawn for flavor in each})
    flavors.sort(key=lambda flavor: -sum(len(each[flavor].bars) for each in drawn if flavor in each))
    # The same scale before and after, so that the heights can be compared.
    lanes = {flavor: max(each[flavor].count for each in drawn if flavor in each) for flavor in flavors}
    steps = [{team: waiting_steps(simulated, team, ends) for team in teams} for _, simulated in simulations]
    most = max((number for each in steps for _, numbers in each.values() for number in numbers), default=0)
    plots = [
        _gantt(f"gantt-{place}-{number}", each[flavor], lanes[flavor], of[number], times, unit, seconds, teams)
        for place, flavor in enumerate(flavors[:_MOST_FLAVORS])
        for number, each in enumerate(drawn)
        if flavor in each
    ]
    return plots + [
        _waiting(f"waiting-{number}", each, most, of[number], times, unit, seconds, share)
        for number, each in enumerate(steps)
    ]


# --- slices by flavor ---------------------------------------------------------------------------------------------


def all_lanes(simulated: Simulated, ends: float) -> list[Lanes]:
    """Return the bars of each flavor with chips until a time. A run gets the lowest lanes that are then free."""
    held: dict[str, list[tuple[float, float, int, str, bool]]] = {}
    flavors = simulated.platform.flavors
    for name, attempts in simulated.outcome.attempts.items():
        for attempt in attempts:
            for given, pod_set in zip(attempt.flavors, simulated.jobs[name].pod_sets, strict=True):
                for resource, flavor in given.items():
                    if flavor in flavors and flavors[flavor].resource == resource:
                        chips = int(pod_set.amounts.get(resource, 0))
                        start = max(0.0, attempt.start)
                        bar = (start, start + held_seconds(attempt, ends), chips, name, attempt.eviction is not None)
                        held.setdefault(flavor, []).append(bar)
    return [_lanes(simulated, flavor, bars) for flavor, bars in sorted(held.items())]


def _lanes(simulated: Simulated, name: str, held: list[tuple[float, float, int, str, bool]]) -> Lanes:
    flavor = simulated.platform.flavors[name]
    size = flavor.chips if flavor.chips and all(chips % flavor.chips == 0 for _, _, chips, _, _ in held) else 1
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    count, bars = 0, []
    for start, end, chips, run, evicted in sorted(held):
        while busy and busy[0][0] <= start + 1e-9:
            heappush(free, heappop(busy)[1])
        needed = chips // size
        taken = []
        for _ in range(needed):
            if free:
                taken.append(heappop(free))
            else:
                taken.append(count)
                count += 1
        for lane in taken:
            heappush(busy, (end, lane))
        for low, high in _ranges(taken):
            bars.append(Bar(run, simulated.teams[run], start, end, low, high, evicted))
    total = int(simulated.platform.quota(name, flavor.resource)) // size
    kept = bars[:MOST_BARS]
    return Lanes(name, "slices" if size > 1 else "chips", max(count, total), kept, len(bars) - len(kept))


def _ranges(lanes: Iterable[int]) -> list[tuple[int, int]]:
    """Return neighbouring lanes as ranges: 0, 1, 4 becomes (0, 2), (4, 5)."""
    ranges: list[tuple[int, int]] = []
    for lane in sorted(lanes):
        if ranges and ranges[-1][1] == lane:
            ranges[-1] = (ranges[-1][0], lane + 1)
        else:
            ranges.append((lane, lane + 1))
    return ranges


def _gantt(
    key: str, lanes: Lanes, count: int, of: str, times: Any, unit: str, seconds: float, teams: Sequence[str]
) -> Chart:
    plot = new_plot(times, Range1d(start=0, end=max(1, count)), pans="xpan")
    plot.height = max(_HEIGHTS[0], min(_HEIGHTS[1], 64 + _LANE * count))
    hovered = []
    for number, team in enumerate(teams):
        bars = [bar for bar in lanes.bars if bar.team == team]
        if not bars:
            continue
        data = {
            "left": [bar.start / seconds for bar in bars],
            "right": [bar.end / seconds for bar in bars],
            "bottom": [bar.low + _GAP for bar in bars],
            "top": [bar.high - _GAP for bar in bars],
            "run": [bar.run for bar in bars],
            "takes": [formatting.duration(bar.end - bar.start) for bar in bars],
            "then": ["preempted" if bar.evicted else "ends" for bar in bars],
        }
        quad = Quad(left="left", right="right", bottom="bottom", top="top", fill_alpha=0.75, line_width=2)
        hovered.append(plot.add_glyph(ColumnDataSource(data), quad, tags=[tag_of(number)], name=team))
    plot.add_tools(hover_tool(hovered, [("run", "@run"), ("team", "$name"), ("for", "@takes"), ("then", "@then")]))
    _add_axes(plot, unit, lanes.unit)
    shown = ", ".join(dict.fromkeys(bar.run for bar in lanes.bars[:12]))
    note = f"A bar is a run on its {lanes.unit}, in the colour of its team."
    if lanes.left_out:
        note += f" The last {lanes.left_out:,} bars are left out."
    return Chart(key, f"{lanes.flavor}{of}", f"The {lanes.unit} of {lanes.flavor} over time: {shown}.", note, plot)


# --- the waiting line ---------------------------------------------------------------------------------------------


def waiting_steps(simulated: Simulated, team: str, ends: float) -> tuple[list[float], list[int]]:
    """Return how many runs of a team wait until a time: times in seconds, and the number from each of them on."""
    changes: list[tuple[float, int]] = [(0.0, 0)]
    for name, job in simulated.jobs.items():
        if simulated.teams[name] != team:
            continue
        since = max(0.0, job.created)
        for attempt in simulated.outcome.attempts.get(name, ()):
            changes += [(since, 1), (max(since, attempt.admitted), -1)]
            if attempt.eviction is None:
                break
            since = attempt.released if attempt.released is not None else attempt.end or ends
        else:
            changes.append((since, 1))
    x: list[float] = []
    y: list[int] = []
    now = 0
    for at, change in sorted(changes):
        now += change
        if x and x[-1] == at:
            y[-1] = now
        else:
            x.append(at)
            y.append(now)
    return [*x, max(ends, x[-1])], [*y, now]


def _waiting(
    key: str,
    steps: Mapping[str, tuple[list[float], list[int]]],
    most: int,
    of: str,
    times: Any,
    unit: str,
    seconds: float,
    share: Shared,
) -> Chart:
    plot = new_plot(times, Range1d(start=0, end=max(1.0, 1.1 * most)), pans="xpan")
    hovered, texts = [], []
    for number, (team, (x, y)) in enumerate(steps.items()):
        if not any(y):
            continue
        texts.append(f"{team} {max(y)}")
        # A line of steps: each value holds until the next time.
        corners = [(at, value) for index, at in enumerate(x) for value in (y[max(0, index - 1)], y[index])]
        source = share.source({"x": [at / seconds for at, _ in corners], "y": [value for _, value in corners]})
        hovered.append(add_line(plot, share, number, team, source))
    plot.add_tools(hover_tool(hovered, [("team", "$name"), ("waiting runs", "@y")]))
    _add_axes(plot, unit, "runs")
    says = f"The waiting runs of each team over time; at most: {'; '.join(texts) or 'none'}."
    return Chart(key, f"Waiting runs{of}", says, "", plot)


def _add_axes(plot: Any, below: str, left: str) -> None:
    """Add the axes of time and of a number that is whole."""
    add_axes(plot, below, left, BasicTickFormatter(), NumeralTickFormatter(format="0,0"))
    for axis in plot.left:
        axis.ticker.min_interval = 1
