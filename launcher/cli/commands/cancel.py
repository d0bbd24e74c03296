from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli.options import format_option, run_argument, run_target_options

if TYPE_CHECKING:
    from launcher.k8s.target import Target


@click.command()
@run_argument
@run_target_options
@format_option
def command(name: str, target: Target, form: str) -> None:
    """Stop a run, or all runs of a sweep, and free all that it holds.

    Its record and checkpoints stay: submitting it again resumes it. A run that has ended is left as it is.
    """
    from launcher import api
    from launcher.backends.base import RunStatus
    from launcher.cli import output

    backend, before = api.resolve(name, target)
    backend.report_progress = output.narrate
    if not isinstance(before, RunStatus):
        from launcher.cli import sweep_verbs

        sweep_verbs.cancel(before, backend, form)
        return
    name = before.name
    if not before.state.ended:
        of = f" ({backend.where})" if backend.where else ""
        output.narrate(f'Ending the run "{name}"{of}…')
    status = backend.cancel(name)
    output.narrate(f'The run "{name}" ' + ("is cancelled." if status.state == "cancelled" else f"had {status.state}."))
    output.emit(status.as_json(), form, "")
