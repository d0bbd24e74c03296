"""A simulation as one self-contained HTML page, with the style, the script and the charts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec

from launcher import distribution, formatting
from launcher.errors import LauncherError
from launcher.simulation.comparison import Comparison, difference, shown, shown_rows
from launcher.simulation.live import Expectation
from launcher.simulation.simulated import RunResult

_MOST_RUNS = 500
# The columns of the table of runs, and their classes in page.css. A run that never starts has the reason as its flavor.
_COLUMNS = (
    ("run", "name"),
    ("team", "name"),
    *((title, "number") for title in ("chips", "arrives", "starts", "wait", "ends")),
    ("flavor", "words"),
    ("preempted", "number"),
)


def page(comparison: Comparison, title: str, expected: Sequence[Expectation] = ()) -> str:
    """Return the page of a simulation, and of a change if there is one. `expected` are the user's runs in a cluster.

    Raises LauncherError if the packages that draw are not installed.
    """
    if find_spec("bokeh") is None:
        raise LauncherError(
            "Bokeh, which draws the charts of a page, is not installed in this Python.",
            f"Install it next to the launcher: {distribution.install('report')}.",
        )
    # These import the packages of the extra `report`.
    from launcher.report.charts import time_unit
    from launcher.report.page import fill
    from launcher.simulation import charts

    after = comparison.after
    simulations = [("Before", comparison.before)] + ([("After", after)] if after is not None else [])
    teams = sorted({team for _, simulated in simulations for team in simulated.teams.values()})
    runs = (after or comparison.before).runs
    ends = max((event.at for _, simulated in simulations for event in simulated.outcome.events), default=0.0)
    groups: dict[str, list[list[str]]] = {}
    for row in shown_rows(comparison.rows):
        cells = [row.name, shown(row.before, row.unit)]
        cells += [shown(row.after, row.unit), difference(row)] if after is not None else []
        groups.setdefault(row.about or "all", []).append(cells)
    return fill(
        files("launcher.simulation").joinpath("page.html").read_text(encoding="utf-8"),
        charts.charts(simulations, teams),
        title=title,
        kind="simulation",
        count=len(runs),
        notes=list(comparison.notes),
        expected=expected,
        groups=list(groups.items()),
        compared=after is not None,
        teams=teams,
        unit=time_unit(ends)[0],
        columns=_COLUMNS,
        runs=[_run(run) for run in runs[:_MOST_RUNS]],
        left_out=max(0, len(runs) - _MOST_RUNS),
    )


def _run(run: RunResult) -> list[str]:
    times = [run.starts, run.wait, run.ends]
    return [
        run.name,
        run.team,
        f"{run.chips:,}",
        formatting.duration(run.arrives),
        *("-" if time is None else formatting.duration(time) for time in times),
        ", ".join(run.flavors) or run.never or "-",
        str(run.preemptions),
    ]
