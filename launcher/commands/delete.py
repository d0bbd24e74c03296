from __future__ import annotations

import sys

import click

from launcher.commands._options import run_argument


@click.command()
@run_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(name: str, yes: bool) -> int:
    """Remove a run that has ended.

    Its folder goes with it: record, log, metrics and checkpoints.
    """
    from launcher import api, output
    from launcher.errors import LauncherError, UsageError

    status = api.status(name)
    if not status.state.ended:
        raise LauncherError(f'The run "{name}" is {status.state}.', f"Cancel it first: launcher cancel {name}")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("There is no terminal to ask on; --yes deletes without asking.")
        if not click.confirm(f'Delete the run "{name}" and all of {status.folder}?', err=True):
            output.narrate("Nothing was deleted.")
            return 1
    api.delete(name)
    output.narrate(f'The run "{name}" is deleted.')
    return 0
