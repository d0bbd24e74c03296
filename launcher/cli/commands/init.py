from __future__ import annotations

import shlex
from pathlib import Path

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import init_target_options
from launcher.k8s.target import Target


@click.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help='The file to write; "-" is stdout (default: launcher.yaml, or run.yaml for this machine).',
)
@init_target_options
def command(out: str | None, target: Target) -> None:
    """Write a values file for a run on this machine, or for all runs of your namespace.

    The file has comments. If there is a kubeconfig, the team, the queue and its priorities come from the namespace, and
    the image and the storage from its newest run: launcher reads a file launcher.yaml in the current folder, or in a
    parent, before every -f. Without a kubeconfig, or with --local, the file is for one run on this machine. An existing
    file is never overwritten.
    """

    out = out or ("launcher.yaml" if target.includes_cluster else "run.yaml")
    text = api.init(None if out == "-" else Path(out), target=target)
    if out == "-":
        output.emit_exactly(text)
    else:
        shown = "" if out == "launcher.yaml" and target.includes_cluster else f" {shlex.quote(out)}"
        if target.includes_cluster:
            output.narrate(f"{out} was written. To show the values: launcher values{shown}")
        else:
            output.narrate(f"{out} was written. To start the run: launcher submit -f{shown}")
