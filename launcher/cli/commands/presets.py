from __future__ import annotations

import click

from launcher import api, formatting
from launcher.cli import output
from launcher.cli.options import format_option


@click.command()
@click.argument("what", required=False, default="", metavar="[WHAT]")
@format_option
def command(what: str, form: str) -> None:
    """List the presets: models, slices, fine-tuning, queues, clusters, tutorials, tuned runs.

    A preset is a values file: combine several, such as -f models/llama3.1-8b -f slices/v6e-4x4, and add your own
    values. WHAT is a part of the names: models, v6e, llama. The columns HOSTS and CHIPS count those of the preset's
    slices.
    """

    found = api.presets(what)
    rows = [("NAME", "HOSTS", "CHIPS", "ABOUT")]
    rows += [(each.name, str(each.hosts or "-"), str(each.chips or "-"), each.about) for each in found]
    output.emit(found, form, formatting.table(rows))
