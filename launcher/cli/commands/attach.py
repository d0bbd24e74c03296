from __future__ import annotations

import click

from launcher import api, hooks
from launcher.backends.base import RunStatus
from launcher.cli import follow, output
from launcher.cli.options import format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.k8s.target import Target


@click.command()
@run_argument
@run_target_options
@format_option
def command(name: str, target: Target, form: str) -> int:
    """Follow a run or a sweep again, until it ends.

    Shows what submit shows after it has started the run: a progress bar with the loss, and a summary at the end. The
    exit code is 0 if the run succeeds, and 1 if it fails or is cancelled. Ctrl-C stops following, but not the run. For
    a run that has ended, only the summary is printed.
    """

    with api.only_runs(target):
        backend, run = api.resolve(name, target)
    backend.report_progress = output.narrate
    if not isinstance(run, RunStatus):
        return hooks.sweep_verb("attach")(run, backend, target, form=form)
    return follow.to_the_end(backend, run, target, form)
