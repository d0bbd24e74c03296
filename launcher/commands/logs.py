from __future__ import annotations

import sys

import click

from launcher.commands._options import run_argument


@click.command()
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the run ends.")
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="Of this worker only, counted from 0.")
def command(name: str, follow: bool, worker: int | None) -> None:
    """Print the output of a run's current attempt."""
    from launcher import api

    for line in api.logs(name, follow=follow, worker=worker):
        sys.stdout.write(line + "\n")
        if follow:
            sys.stdout.flush()
