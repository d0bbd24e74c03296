from __future__ import annotations

import sys

import click

from launcher import api
from launcher.cli.options import WholeNumber, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.errors import UsageError
from launcher.k8s.target import Target
from launcher.products.inspect import terminal


@click.command()
@run_argument
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--worker", type=WholeNumber(min=0), default=0, metavar="N", help="The host, counted from 0 (default: 0)."
)
@run_target_options
def command(name: str, words: tuple[str, ...], worker: int, target: Target) -> int:
    """Open a shell in the pod of a host of a run, or run a command there.

    The exit code is that of the shell or the command. The right to run commands in pods is separate: the values of
    charts/queues grant it to the members of a team with teams.NAME.shell.
    """

    session = api.shell(name, worker=worker, command=words, target=target)
    if not words and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"A shell needs a terminal; to run a command without one: launcher shell {name} -- COMMAND")
    return terminal.run(session, interactive=not words)
