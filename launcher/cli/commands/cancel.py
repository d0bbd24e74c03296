from __future__ import annotations

import click

from launcher import api
from launcher.backends.base import RunStatus
from launcher.cli import output, sweep_verbs
from launcher.cli.options import format_option, run_argument, run_target_options
from launcher.k8s.target import Target


@click.command()
@run_argument
@run_target_options
@format_option
def command(name: str, target: Target, form: str) -> None:
    """Stop a run or a sweep, and release its resources.

    The record and the checkpoints of a run are kept, so submitting it again resumes it. A run that has ended is not
    changed.
    """

    backend, before = api.resolve(name, target)
    backend.report_progress = output.narrate
    if not isinstance(before, RunStatus):
        sweep_verbs.cancel(before, backend, form)
        return
    name = before.name
    if not before.state.ended:
        of = f" ({backend.description})" if backend.description else ""
        output.narrate(f'Cancelling the run "{name}"{of}…')
    status = backend.cancel(name)
    output.narrate(
        f'The run "{name}" ' + ("is cancelled." if status.state == "cancelled" else f"has already {status.state}.")
    )
    output.emit(status.as_json(), form, "")
