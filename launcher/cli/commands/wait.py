from __future__ import annotations

import click

from launcher import api, hooks
from launcher.backends.base import RunStatus
from launcher.cli import colour, follow, output
from launcher.cli.options import Seconds, format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.k8s.target import Target


@click.command()
@run_argument
@click.option(
    "--timeout", type=Seconds(), metavar="TIME", help="Stop waiting after 90, 90s, 5m or 1.5h, with exit code 124."
)
@run_target_options
@format_option
def command(name: str, timeout: float | None, target: Target, form: str) -> int:
    """Wait until a run ends, or all runs of a sweep.

    The exit code is 0 if the run, or all runs of the sweep, succeeded; otherwise it is 1.
    """

    with api.only_runs(target):
        backend, run = api.resolve(name, target)
    if not isinstance(run, RunStatus):
        return hooks.sweep_verb("wait")(run, backend, target, timeout=timeout, form=form)
    status = api.wait(run.name, timeout=timeout, target=target)
    output.emit(status.as_json(), form, follow.summary(status, target), paint=colour.status)
    return follow.exit_code(status)
