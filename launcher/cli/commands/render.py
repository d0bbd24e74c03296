from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import chart_arguments, name_option, refuse_name, values_options


@click.command(cls=ValuesCommand)
@chart_arguments
@values_options
@name_option
@format_option
def command(
    chart: str | None,
    release: str | None,
    files: tuple[str, ...],
    sets: tuple[str, ...],
    name: str | None,
    form: str,
) -> None:
    """Print the manifests that submit would create.

    With a chart, print those that install would apply. Requires Helm, but no cluster. The values are
    checked first, as in submit and install.
    """

    if chart is not None:
        refuse_name("render", chart, name)
        rendering = api.render_release(chart, files, sets, name=release)
    else:
        plan = api.plan(files, sets, name=name)
        output.narrate(*(f"Warning: {warning}" for warning in plan.warnings))
        if plan.others:
            output.narrate(f"This is {plan.alternative}; launcher submit selects one.")
        rendering = api.render(plan)
    output.narrate(*filter(None, [rendering.message]))
    if form == "json":
        output.emit(rendering.data, form, "")
    elif rendering.text:
        output.emit_exactly(rendering.text if rendering.text.endswith("\n") else rendering.text + "\n")
