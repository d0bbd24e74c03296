from __future__ import annotations

from dataclasses import replace

import click

from launcher import api, formatting
from launcher.backends.base import RunStatus
from launcher.backends.ray_cluster import clusters as ray_clusters
from launcher.cli import output
from launcher.cli.follow_sweep import as_text
from launcher.cli.options import format_option, run_target_options
from launcher.errors import LauncherError, UsageError
from launcher.k8s.target import Target

_NONE = "No runs found. To start a run: launcher submit -f FILE"


@click.command()
@run_target_options
@click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="List the runs of all namespaces of the cluster."
)
@click.option("--sweep", default="", metavar="NAME", help="List only the runs of this sweep.")
@click.option("--clusters", "only_clusters", is_flag=True, help="List only the long-lived Ray clusters.")
@format_option
def command(target: Target, everywhere: bool, sweep: str, only_clusters: bool, form: str) -> None:
    """List the runs of this machine and of the namespace.

    The newest run comes first. The long-lived Ray clusters of the namespace are listed below the runs; with -o json or
    yaml, only the runs are printed, or with --clusters only the Ray clusters.
    """

    if everywhere and (target.local or target.namespace is not None):
        raise UsageError("--all-namespaces cannot be used with --local or --namespace.")
    target = replace(target, all_namespaces=everywhere)
    if only_clusters:
        _print_clusters(target, form)
        return
    warned: list[str] = []

    def warn(sentence: str) -> None:
        warned.append(sentence)
        output.narrate(f"Warning: {sentence}")

    runs = api.list_runs(warn, target=target, sweep=sweep)
    if not runs and not warned:
        output.narrate(f'The sweep "{sweep}" was not found.' if sweep else _NONE)
    text = formatting.table(_rows(runs)) if runs else ""
    if form == "text" and not sweep:
        text = "\n\n".join(filter(None, [text, _clusters_text(target)]))
    output.emit([run.as_json() for run in runs], form, text)


def _print_clusters(target: Target, form: str) -> None:

    found = api.clusters(target=target, warn=lambda sentence: output.narrate(f"Warning: {sentence}"))
    if not found:
        output.narrate("No long-lived Ray clusters found. To create one: launcher install ray-cluster -f FILE")
    output.emit([each.as_json() for each in found], form, ray_clusters.listing(found))


def _clusters_text(target: Target) -> str:
    """Return the table of long-lived Ray clusters; "" if there are none, or if the list of runs reports the error."""

    try:
        return ray_clusters.listing(api.clusters(target=target))
    except LauncherError:
        return ""


def _rows(runs: list[RunStatus]) -> list[tuple[str, ...]]:
    """Return the table of the runs, with the columns that have a value in at least one run."""

    many = len({run.namespace for run in runs if run.in_cluster}) > 1
    table = {
        "NAME": [run.name for run in runs],
        "NAMESPACE": [run.namespace if many else "" for run in runs],
        "TEAM": [run.team for run in runs],
        "KIND": [run.kind for run in runs],
        "SLICES": [_slices(run) for run in runs],
        "STATE": [run.state.value for run in runs],
        "AGE": [formatting.age(run.submitted) for run in runs],
        "PRIORITY": [run.priority for run in runs],
        "QUEUE": [f"{run.queue} #{run.position}" if run.position else run.queue for run in runs],
        "STEP": [_step(run) for run in runs],
        "SWEPT": [", ".join(f"{key} {as_text(value)}" for key, value in run.sweep_values.items()) for run in runs],
        "LOSS": ["" if run.loss is None else f"{run.loss:.3f}" for run in runs],
    }
    columns = {title: cells for title, cells in table.items() if any(cells)}
    return [tuple(columns), *zip(*columns.values(), strict=True)]


def _slices(run: RunStatus) -> str:
    return f"{run.slices} x {run.accelerator}" if run.slices and run.accelerator else ""


def _step(run: RunStatus) -> str:
    if run.step is None:
        return ""
    return f"{run.step}/{run.steps}" if run.steps else str(run.step)
