from __future__ import annotations

import click

from launcher import api, formatting
from launcher.cli import output
from launcher.cli.options import format_option
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import any_values_options, chart_argument, name_option
from launcher.config.values.tree import Values, dotted
from launcher.errors import UsageError


@click.command(cls=ValuesCommand)
@chart_argument
@any_values_options
@name_option
@click.option("--all", "defaults", is_flag=True, help="Add the chart's defaults for keys that are not set.")
@click.option("--origins", is_flag=True, help="Print each key with the file and line that set it.")
@format_option
def command(
    chart: str | None,
    files: tuple[str, ...],
    sets: tuple[str, ...],
    name: str | None,
    defaults: bool,
    origins: bool,
    form: str,
) -> None:
    """Print the values files and --set, merged and not validated.

    Values are merged as Helm does: maps merge, lists and scalars replace, and null removes a default. With a
    chart, --all adds its defaults instead of those of a run.
    """

    if chart and name is not None:
        raise UsageError("--name is the name of a run; leave it out for the values of a chart.")
    merged = api.values(files, sets, name=name, defaults=defaults, chart=chart or "run")
    if origins:
        _print_origins(merged, form)
    else:
        output.emit(merged.tree, "yaml" if form == "text" else form, "")


def _print_origins(merged: Values, form: str) -> None:

    rows = [(dotted(path), value, origin) for path, value, origin in merged.leaves()]
    data = [{"key": key, "value": value, "file": origin.file, "line": origin.line} for key, value, origin in rows]
    text = [(key, output.to_json(output.plain(value)), str(origin)) for key, value, origin in rows]
    output.emit(data, form, formatting.table(text, headed=False))
