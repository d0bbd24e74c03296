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
    default="launcher.yaml",
    metavar="FILE",
    help='The file to write; "-" is stdout (default: launcher.yaml).',
)
@init_target_options
def command(out: str, target: Target) -> None:
    """Write a values file for this machine or for your namespace.

    The file has comments. If there is a kubeconfig, the team, the queue and its priorities come from the namespace, and
    the image and the storage from its newest run. --local writes a file for runs on this machine, and needs no cluster.
    An existing file is never overwritten. launcher reads a file launcher.yaml in the current folder, or in a parent,
    before every -f.
    """

    text = api.init(None if out == "-" else Path(out), target=target)
    if out == "-":
        output.emit_exactly(text)
    else:
        shown = "" if out == "launcher.yaml" else f" {shlex.quote(out)}"
        output.narrate(f"{out} was written. To show the values: launcher values{shown}")
