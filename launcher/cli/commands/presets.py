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

    presets = api.presets(what)
    rows = [("NAME", "HOSTS", "CHIPS", "ABOUT")]
    rows += [(preset.name, str(preset.hosts or "-"), str(preset.chips or "-"), preset.about) for preset in presets]
    output.emit(presets, form, formatting.table(rows))
