from __future__ import annotations

import click

from launcher.commands._options import format_option, run_argument


@click.command()
@run_argument
@format_option
def command(name: str, form: str) -> None:
    """Stop a run and free all that it holds.

    Its record and checkpoints stay: submitting it again resumes it. A run that has ended is left as it is.
    """
    from launcher import api, output

    before = api.status(name)
    if not before.state.ended:
        output.narrate(f'Ending the run "{name}"…')
    status = api.cancel(name)
    output.narrate(f'The run "{name}" ' + ("is cancelled." if status.state == "cancelled" else f"had {status.state}."))
    output.emit(status.as_json(), form, "")
