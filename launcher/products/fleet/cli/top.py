from __future__ import annotations

import sys
from dataclasses import replace

import click

from launcher import api
from launcher.cli.options import run_target_options
from launcher.errors import UsageError
from launcher.k8s.target import Target


@click.command()
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Show the runs of all namespaces.")
@run_target_options
def command(everywhere: bool, target: Target) -> None:
    """Show queues and runs in the terminal, and update them.

    The rows are those of `launcher board`. Select a run with the arrow keys. Then e explains its state, l follows its
    logs, a attaches to it, and c cancels it after a question. Press / to filter the runs, x to show those that have
    ended, and q to quit.
    """

    if everywhere and (target.local or target.namespace is not None):
        raise UsageError("--all-namespaces cannot be used with --local or --namespace.")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("launcher top needs a terminal; use launcher list, or launcher queues.")
    api.top(target=replace(target, all_namespaces=everywhere))
