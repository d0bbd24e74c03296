from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import WholeNumber, format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.k8s.target import Target


@click.command()
@run_argument
@click.option(
    "--steps", type=WholeNumber(1, 1000), default=5, metavar="N", help="The number of steps to record (default: 5)."
)
@run_target_options
@format_option
def command(name: str, steps: int, target: Target, form: str) -> None:
    """Record a profile of the next steps of a run.

    The run continues. JAX's profiler writes an XPlane profile of the first host's process into the run's folder, for
    TensorBoard. Recorded steps are slower than others. For a run on a cluster, this needs the right to run commands in
    pods, which the values of charts/queues grant with teams.NAME.shell.
    """

    profile = api.profile(name, steps=steps, target=target, say=output.narrate)
    output.emit(profile, form, profile.folder)
    last = profile.first_step + profile.steps
    viewer = f"launcher tensorboard {name}"
    if "://" in profile.folder:
        viewer = f"python -m tensorboard.main --logdir {profile.folder.partition('/plugins/')[0]}"
    output.narrate(
        f"Recorded {profile.steps} steps (steps {profile.first_step + 1} to {last}). To view them, open the tab "
        f"Profile of: {viewer}"
    )
