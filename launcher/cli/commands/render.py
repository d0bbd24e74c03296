from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option, name_option, values_options


@click.command()
@values_options
@name_option
@format_option
def command(files: tuple[str, ...], sets: tuple[str, ...], name: str | None, form: str) -> None:
    """Print the manifests that submit would create.

    Requires Helm, but no cluster. The values are checked first, as in submit.
    """

    plan = api.plan(files, sets, name=name)
    output.narrate(*(f"Warning: {warning}" for warning in plan.warnings))
    rendering = api.render(plan)
    output.narrate(*filter(None, [rendering.message]))
    if form == "json":
        output.emit(rendering.data, form, "")
    elif rendering.text:
        output.emit_exactly(rendering.text if rendering.text.endswith("\n") else rendering.text + "\n")
