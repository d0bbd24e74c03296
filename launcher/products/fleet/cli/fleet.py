from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher import api, formatting
from launcher.cli import colour, output
from launcher.cli.options import format_options, target_options
from launcher.cli.values_options import files_option
from launcher.k8s.target import Target
from launcher.products.fleet import tables, usage
from launcher.products.fleet.page import page
from launcher.products.report import output as page_file

if TYPE_CHECKING:
    from launcher.products.fleet.api import Fleet


@click.command()
@click.option(
    "--since", default="30d", metavar="TIME", help="The start: a duration such as 7d, or a date (default: 30d)."
)
@click.option("--until", default="", metavar="TIME", help="The end, as for --since (default: now).")
@click.option("--team", default="", metavar="TEAM", help="Only the runs of a team.")
@click.option(
    "--records",
    multiple=True,
    metavar="FOLDER|URL",
    help="Also read the records of runs that launcher record has written there; may be repeated.",
)
@files_option(
    "-f", "--file", "files", text="A values file with prices and the time zone (fleet, common.prices); may be repeated."
)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a value; may be repeated.")
@click.option("--html", metavar="FILE", help="Also write a page with the chips of each team over time.")
@click.option("--force", is_flag=True, help="Overwrite the file of --html even if it is not a page of Slipway.")
@format_options("csv", note="; csv has a row for each run, flavor and day.")
@target_options
def command(
    since: str,
    until: str,
    team: str,
    records: tuple[str, ...],
    files: tuple[str, ...],
    sets: tuple[str, ...],
    html: str | None,
    force: bool,
    form: str,
    target: Target,
) -> None:
    """Show chip-hours, waits, preemptions and cost of all runs, by team, user and flavor.

    The runs are those that the API server still has, and those with a record (--records). A chip-hour is a chip that a
    run has for an hour, from its admission until its quota is free again. IDLE is the quota of now that no run used.
    PREEMPTED CHIP-HOURS are those of attempts that Kueue preempted. A "~" marks a run whose earlier attempts are known
    only as a sum. Without the right to list the runs of all namespaces, those of the namespace are shown.
    """
    path = None if html is None else Path(html)
    if path is not None:
        page_file.check(path, force=force)
    fleet = api.fleet(since, until, team=team, records=records, target=target, files=files, sets=sets)
    if path is not None:
        page_file.write(path, page(fleet.use, fleet.zone))
    if form == "csv":
        output.narrate(*tables.marks(fleet.use, fleet.zone))
        output.emit_exactly(fleet.csv())
        return
    output.emit(usage.as_json(fleet.use), form, _text(fleet), paint=colour.tables)


def _text(fleet: Fleet) -> str:
    use = fleet.use
    if not use.runs:
        parts = ["No run with chips waited or ran in this period."]
    else:
        users = use.users if any(group.name != "unknown" for group in use.users) else ()
        parts = [
            _table(tables.groups("team", use.teams, use)),
            _table(tables.flavors(use.flavors, use)),
            _table(tables.groups("user", users, use)) if users else "",
            _table(tables.losses(use)) if use.total.lost else "",
            _table(slow) if (slow := tables.slow_runs(use.runs, fleet.zone))[1] else "",
            _table(tables.runs(use.runs, use)),
        ]
        if len(use.runs) > tables.MOST_RUNS:
            parts.append(f"{len(use.runs) - tables.MOST_RUNS:,} more runs; -o json lists all of them.")
    marks = "\n".join(map(formatting.paragraph, tables.marks(use, fleet.zone)))
    return "\n\n".join(filter(None, [f"{tables.title(use, fleet.zone)}", *parts, marks]))


def _table(table: tables.Table) -> str:
    columns, rows = table
    return formatting.table([[title.upper() for title, _ in columns], *rows])
