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
@click.option("--notify", "secret", default="", metavar="SECRET", help="Notify of ends, by Secrets with this name.")
@format_option
def command(
    folder: str,
    context: str | None,
    namespaces: Sequence[str],
    everywhere: bool,
    files: Sequence[str],
    storage: str | None,
    secret: str,
    form: str,
) -> None:
    """Write the records of the runs of a cluster.

    FOLDER is a folder of this machine or the URL of a bucket (gs://). Each run gets one file. A run that has ended is
    recorded once. An active run is recorded at each call, so that its times are known when its object is gone.

    The trainer writes a record into the run's folder, with steps, tokens and goodput. If that folder is in a bucket
    that you may read, or below --storage, the two records become one.

    With --notify, each run that ended without a notification of its trainer gets one: to the addresses in
    SLIPWAY_NOTIFY, and to those in the key `addresses` of the Secret with that name in the run's namespace.
    """

    if everywhere and namespaces:
        raise UsageError("--all-namespaces cannot be used with --namespace.")
    target = replace(Target(), context=context, all_namespaces=everywhere)
    done = api.record_runs(
        folder, target=target, namespaces=namespaces, files=files, storage=storage, notify_secret=secret
    )
    for problem in done.problems:
        output.narrate(f"Warning: {problem}")
    count = len(done.written)
    words = f"{count} record{'s' * (count != 1)} written to {folder}, {done.unchanged} unchanged."
    if done.notified:
        words += f" Notified of {', '.join(done.notified)}."
    output.emit(done.as_json(), form, words)
