from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from launcher import api, hooks
from launcher.backends import selection
from launcher.backends.base import RunStatus, State
from launcher.backends.selection import RunFilter
from launcher.cli import colour, output, run_table
from launcher.cli.options import format_option, run_target_options
from launcher.cli.selection_options import run_selection
from launcher.errors import LauncherError, UsageError
from launcher.hooks import ExpectedStart
from launcher.k8s.target import Target

_MOST_SECONDS = 5.0  # for the requests and the calculation of the column STARTS
# The other lists: the end of the error without a product for it, the option that shows only it, and its empty text.
_OTHERS = {
    "served_models": ("serves models", "--models", "No served models found. To serve one: launcher serve NAME -f FILE"),
    "ray_clusters": (
        *("has long-lived Ray clusters", "--clusters"),
        "No long-lived Ray clusters found. To create one: launcher install ray-cluster -f FILE",
    ),
}
_NONE = "No runs found. To start a run: launcher submit -f FILE"


@click.command()
@run_selection
@run_target_options
@click.option(
    "-A",
    "--all-namespaces",
    "everywhere",
    is_flag=True,
    help="List the runs and the served models of all namespaces of the cluster.",
)
@click.option("--sweep", default="", metavar="NAME", help="List only the runs of this sweep.")
@click.option("--clusters", "only_clusters", is_flag=True, help="List only the long-lived Ray clusters.")
@click.option("--models", "only_models", is_flag=True, help="List only the served models.")
@format_option
def command(
    names: tuple[str, ...],
    only: RunFilter,
    target: Target,
    everywhere: bool,
    sweep: str,
    only_clusters: bool,
    only_models: bool,
    form: str,
) -> None:
    """List the runs of this machine and of the namespace.

    A NAME is a run, a sweep, or a pattern of runs, such as "demo-*"; without one, all runs are listed. The newest run
    comes first. The served models and the long-lived Ray clusters of the namespace are listed below the runs; with
    -o json or yaml, only the runs are printed, or with --models only the served models, or with --clusters only the
    Ray clusters.

    MADE BY marks objects in the queues that Slipway did not create, such as a RayJob of kubectl; with -o json, they
    have "foreign": true, and their kind is the Kubernetes kind. UNCOUNTED is the number of chips that the pods use
    although no quota counts them, for example because the run has ended and its Ray cluster was kept; with -o json,
    uncounted_chips and uncounted_reason. Both need the right to list pods and Workloads.

    STARTS is when a run that waits in a queue will start, by a simulation of Kueue's scheduler. It is left out with
    --all-namespaces, if the queues of the cluster cannot be read, and if the simulation takes longer than 5 s. launcher
    simulate prints the details.
    """

    if everywhere and (target.local or target.namespace is not None):
        raise UsageError("--all-namespaces cannot be used with --local or --namespace.")
    if only_clusters and (names or only):
        raise UsageError("--clusters cannot be used with the names, states or ages of runs.")
    if only_clusters and target.local:
        raise UsageError("--clusters cannot be used with --local: Ray clusters are in a cluster.")
    if only_models and (only_clusters or names or only or sweep):
        raise UsageError("--models cannot be used with --clusters, --sweep, or the names, states or ages of runs.")
    if only_models and target.local:
        raise UsageError("--models cannot be used with --local: served models are in a cluster.")
    target = replace(target, all_namespaces=everywhere)
    if only_clusters:
        _print("ray_clusters", target, form)
        return
    if only_models:
        _print("served_models", target, form)
        return
    warned: list[str] = []

    def warn(sentence: str) -> None:
        warned.append(sentence)
        output.narrate(f"Warning: {sentence}")

    runs = api.list_runs(warn, target=target, sweep=sweep, everything=True)
    selected = [run for run in runs if selection.matches(run, names) and only.accepts(run)]
    unknown = [name for name in names if not any(selection.matches(run, [name]) for run in runs)]
    if runs and unknown:
        output.narrate(*(f'No run matches "{name}".' for name in unknown))
    elif runs and not selected:
        output.narrate("No run has this state and age.")
    elif not runs and not warned:
        output.narrate(f'The sweep "{sweep}" was not found.' if sweep else _NONE)
    runs = selected
    starts: Sequence[ExpectedStart | None] = [None] * len(runs) if everywhere else _starts(runs, target)
    text = run_table.table(runs, ["" if start is None else start.likely for start in starts]) if runs else ""
    if form == "text" and not (sweep or names or only):
        text = "\n\n".join(filter(None, [text, *(_table(things, target) for things in _OTHERS)]))
    data = [
        run.as_json() | ({} if start is None else {"starts": dict(start.data)})
        for run, start in zip(runs, starts, strict=True)
    ]
    output.emit(data, form, text, paint=colour.tables)


def _starts(runs: Sequence[RunStatus], target: Target) -> list[ExpectedStart | None]:
    """Return when each of the runs starts, None for a run that does not wait in a queue, or if it is not known.

    Makes no request if none waits.
    """
    waits = [
        run.in_cluster and not run.foreign and run.queue and run.state in (State.QUEUED, State.PREEMPTED)
        for run in runs
    ]
    expected: dict[str, ExpectedStart] = {}
    if any(waits):
        try:
            expected = hooks.expected_starts(target, within=_MOST_SECONDS)
        except LauncherError as error:
            output.narrate(f"{error.message} {error.hint}".strip())
    return [expected.get(run.name) if waiting else None for run, waiting in zip(runs, waits, strict=True)]


def _print(things: str, target: Target, form: str) -> None:
    """Print the "served_models" or the "ray_clusters"."""
    missing, option, none = _OTHERS[things]
    listing = hooks.listing(things, target, lambda sentence: output.narrate(f"Warning: {sentence}"))
    if listing is None:
        raise LauncherError(f"No installed package of the launcher {missing}.", f"Leave out {option}.")
    data, text = listing
    if not data:
        output.narrate(none)
    output.emit(data, form, text, paint=colour.tables)


def _table(things: str, target: Target) -> str:
    """Return the table below the runs; "" if there is nothing in it, or if the list of runs reports the error."""
    try:
        return (hooks.listing(things, target) or ((), ""))[1]
    except LauncherError:
        return ""
