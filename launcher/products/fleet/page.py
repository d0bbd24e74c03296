"""A fleet as one self-contained HTML page, with the style, the script and the charts of a report."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from zoneinfo import ZoneInfo

from launcher import distribution
from launcher.errors import LauncherError
from launcher.products.fleet import tables
from launcher.products.fleet.usage import FleetUse


def page(fleet: FleetUse, zone: ZoneInfo) -> str:
    """Return the page. Raises LauncherError if the packages that draw are not installed."""
    if find_spec("bokeh") is None:
        raise LauncherError(
            "Bokeh, which draws the charts of a page, is not installed in this Python.",
            f"Install it next to the launcher: {distribution.install('fleet')}.",
        )
    # These import the packages of the extra `report`.
    from launcher.products.fleet.charts import charts
    from launcher.products.report.page import fill

    teams = sorted(group.name for group in fleet.teams)
    return fill(
        files("launcher.products.fleet").joinpath("page.html").read_text(encoding="utf-8"),
        charts(fleet, teams),
        title="Fleet",
        kind="fleet",
        count=len(fleet.runs),
        period=tables.title(fleet, zone),
        marks=tables.marks(fleet, zone),
        teams=teams,
        tables=[
            ("Teams", tables.groups("team", fleet.teams, fleet)),
            ("Flavors", tables.flavors(fleet.flavors, fleet)),
            ("Users", tables.groups("user", fleet.users, fleet)),
            ("Losses", tables.losses(fleet)),
            ("Slow runs", tables.slow_runs(fleet.runs, zone)),
            ("Runs with the most chip-hours", tables.runs(fleet.runs, fleet)),
        ],
    )
