from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option
from launcher.errors import UsageError
from launcher.k8s.target import Target


@click.command()
@click.argument("folder", metavar="FOLDER")
@click.option("--context", metavar="NAME", help="The context of the kubeconfig (default: the current one).")
@click.option("-n", "--namespace", "namespaces", multiple=True, metavar="NAME", help="A namespace; may be repeated.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Record the runs of all namespaces.")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="A values file with common.prices.")
@click.option("--storage", metavar="DIR", help="The folder in which the storage of the runs is mounted here.")
@format_option
def command(
    folder: str,
    context: str | None,
    namespaces: Sequence[str],
    everywhere: bool,
    files: Sequence[str],
    storage: str | None,
    form: str,
) -> None:
    """Write the records of the runs of a cluster.

    FOLDER is a folder of this machine or the URL of a bucket (gs://). Each run gets one file. A run that has ended is
    recorded once. An active run is recorded at each call, so that its times are known when its object is gone.

    If a run's folder has a record, too (run.record.json), and is in a bucket that you may read or below --storage, the
    two become one. Slipway's trainer does not write one yet, so steps, tokens and goodput are empty.
    """

    if everywhere and namespaces:
        raise UsageError("--all-namespaces cannot be used with --namespace.")
    target = replace(Target(), context=context, all_namespaces=everywhere)
    done = api.record_runs(folder, target=target, namespaces=namespaces, files=files, storage=storage)
    for problem in done.problems:
        output.narrate(f"Warning: {problem}")
    count = len(done.written)
    words = f"{count} record{'s' * (count != 1)} written to {folder}, {done.unchanged} unchanged."
    output.emit(done.as_json(), form, words)
