from __future__ import annotations

import click

from launcher.commands._options import format_option


@click.command()
@format_option
def command(form: str) -> None:
    """List the runs, newest first."""
    from launcher import api, output

    runs = api.list_runs(warn=lambda sentence: output.narrate(f"Warning: {sentence}"))
    rows = [("NAME", "KIND", "STATE", "STEP", "LOSS", "SUBMITTED")]
    for run in runs:
        step = "" if run.step is None else f"{run.step}/{run.steps}" if run.steps else str(run.step)
        loss = "" if run.loss is None else f"{run.loss:.3f}"
        rows.append((run.name, run.kind, run.state.value, step, loss, run.submitted or ""))
    if not runs:
        output.narrate("There are no runs yet; launcher submit starts one.")
    output.emit([run.as_json() for run in runs], form, output.table(rows) if runs else "")
