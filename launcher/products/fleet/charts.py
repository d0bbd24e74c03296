"""The charts of a fleet: the chips of each team over time against the quota, by flavor. Drawn as those of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from bokeh.models import BasicTickFormatter, NumeralTickFormatter, Range1d
from bokeh.models.annotations import BoxAnnotation, Span

from launcher.products.fleet.model import Period
from launcher.products.fleet.usage import FleetUse, RunUse
from launcher.products.report.charts import Chart, Shared, add_axes, add_line, hover_tool, new_plot, time_unit

_MOST_FLAVORS = 6


def charts(fleet: FleetUse, teams: Sequence[str]) -> list[Chart]:
    """Return a chart for each flavor with chip-hours, the most used first. They zoom together."""
    unit, seconds = time_unit(fleet.period.end - fleet.period.start)
    length = (fleet.period.end - fleet.period.start) / seconds
    times = Range1d(start=-length, end=0)
    share = Shared()
    used = sorted((row for row in fleet.flavors if row.chip_hours), key=lambda row: -row.chip_hours)
    drawn = []
    for place, flavor in enumerate(used[:_MOST_FLAVORS]):
        steps = {team: chip_steps(fleet.runs, flavor.name, team, fleet.period) for team in teams}
        most = max([flavor.chips, *(value for _, values in steps.values() for value in values)])
        plot = new_plot(times, Range1d(start=0, end=max(1.0, 1.1 * most)), pans="xpan")
        hovered, peaks = [], []
        for number, (team, (x, y)) in enumerate(steps.items()):
            if not any(y):
                continue
            peaks.append(f"{team} {max(y):,}")
            # A line of steps: each value holds until the next time.
            corners = [(at, value) for index, at in enumerate(x) for value in (y[max(0, index - 1)], y[index])]
            data = {"x": [(at - fleet.period.end) / seconds for at, _ in corners], "y": [value for _, value in corners]}
            hovered.append(add_line(plot, share, number, team, share.source(data)))
        if flavor.chips:
            plot.add_layout(Span(location=flavor.chips, dimension="width", line_dash="dotted", line_color="#888888"))
        for gap in fleet.gaps:
            left, right = ((at - fleet.period.end) / seconds for at in (gap.start, gap.end))
            plot.add_layout(BoxAnnotation(left=left, right=right, fill_color="#888888", fill_alpha=0.2))
        plot.add_tools(hover_tool(hovered, [("team", "$name"), ("chips", "@y")]))
        add_axes(plot, unit, "chips", BasicTickFormatter(), NumeralTickFormatter(format="0,0"))
        note = f"The dotted line is the quota of all queues now: {flavor.chips:,} chips." if flavor.chips else ""
        if fleet.gaps:
            note += " In the grey times, nothing is known."
        says = f"The chips of {flavor.name} that each team had; at most: {'; '.join(peaks)}."
        drawn.append(Chart(f"chips-{place}", flavor.name, says, note.strip(), plot, wide=True))
    return drawn


def chip_steps(rows: Sequence[RunUse], flavor: str, team: str, period: Period) -> tuple[list[float], list[int]]:
    """Return the chips of a flavor that a team had: times, and the number from each of them on until the next."""
    changes: defaultdict[float, int] = defaultdict(int)
    for row in rows:
        chips = row.run.chips.get(flavor, 0)
        if row.run.team != team or not chips:
            continue
        for attempt, _ in row.run.held(period):
            changes[max(attempt.start, period.start)] += chips
            changes[min(attempt.end, period.end)] -= chips
    x, y, now = [period.start], [0], 0
    for at in sorted(changes):
        now += changes[at]
        if at == x[-1]:
            y[-1] = now
        else:
            x.append(at)
            y.append(now)
    return [*x, period.end], [*y, now]
