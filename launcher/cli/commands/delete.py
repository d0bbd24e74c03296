from __future__ import annotations

import click

from launcher import api
from launcher.backends.base import BEING_CANCELLED, RunStatus
from launcher.cli import follow, output, sweep_verbs
from launcher.cli.options import need_terminal, run_argument, run_target_options
from launcher.errors import LauncherError
from launcher.k8s.target import Target


@click.command()
@run_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@run_target_options
def command(name: str, yes: bool, target: Target) -> int:
    """Delete a run that has ended, or all runs of a sweep.

    A local run is deleted with its folder: record, log, metrics and checkpoints. For a run on a cluster, only its
    record is deleted; checkpoints and metrics stay in its storage.
    """

    backend, status = api.resolve(name, target)
    backend.report_progress = output.narrate
    if not isinstance(status, RunStatus):
        return sweep_verbs.delete(status, backend, confirm=not yes)
    name = status.name
    if not status.state.ended and status.reason != BEING_CANCELLED:  # the backend checks a run that is being cancelled
        run = follow.run_argument(status, target)
        raise LauncherError(f'The run "{name}" is {status.state}.', f"Cancel it first: launcher cancel {run}")
    if not yes:
        need_terminal()
        all_of = f"({backend.description})" if backend.description else f"and all of {status.folder}"
        if not click.confirm(f'Delete the run "{name}" {all_of}?', err=True):
            output.narrate("Nothing was deleted.")
            return 1
    if yes and backend.description:
        output.narrate(f'Deleting the run "{name}" ({backend.description})…')
    backend.delete(name)
    output.narrate(f'The run "{name}" is deleted.')
    return 0
