"""A simulation as one self-contained HTML page, with the style, the script and the charts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec

from launcher import distribution
from launcher.errors import LauncherError
from launcher.products.planner.simulation import tables
from launcher.products.planner.simulation.comparison import Comparison
from launcher.products.planner.simulation.live import Expectation

_MOST_RUNS = 500


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
    from launcher.products.planner.simulation import charts
    from launcher.products.report.charts import time_unit
    from launcher.products.report.page import fill

    after = comparison.after
    simulations = [("Before", comparison.before)] + ([("After", after)] if after is not None else [])
    teams = sorted({team for _, simulated in simulations for team in simulated.teams.values()})
    runs = (after or comparison.before).runs
    groups: dict[str, list[list[str]]] = {}
    for row in tables.shown_rows(comparison.rows):
        groups.setdefault(row.about or "all", []).append(tables.figure_cells(row, compared=after is not None))
    columns, rows = tables.run_table(runs[:_MOST_RUNS])
    return fill(
        files("launcher.products.planner.simulation").joinpath("page.html").read_text(encoding="utf-8"),
        charts.charts(simulations, teams),
        title=title,
        kind="simulation",
        count=len(runs),
        notes=comparison.notes,
        change=list(comparison.change),
        expected_columns=tables.EXPECTED_COLUMNS,
        expected=[tables.expected_cells(each) for each in expected],
        details=[line for each in expected for line in tables.details(each)],
        groups=list(groups.items()),
        compared=after is not None,
        teams=teams,
        unit=time_unit(comparison.until)[0],
        columns=columns,
        runs=rows,
        left_out=max(0, len(runs) - _MOST_RUNS),
    )
