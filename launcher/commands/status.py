from __future__ import annotations

import click

from launcher.commands._options import format_option, run_argument


@click.command()
@run_argument
@format_option
def command(name: str, form: str) -> None:
    """Show what is known of a run now."""
    from launcher import api, output

    data = api.status(name).as_json()
    rows = [(key, str(value)) for key, value in data.items() if value not in (None, "")]
    output.emit(data, form, output.table(rows))
