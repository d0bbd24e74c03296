from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from launcher import formatting
from launcher.cli import output
from launcher.cli.options import confirm, format_option, format_options, target_options
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import files_option
from launcher.config.values.writer import dumps
from launcher.errors import LauncherError
from launcher.k8s.target import Target
from launcher.products.gke import api as gke_api

if TYPE_CHECKING:
    from launcher.products.gke.plan import Plan
    from launcher.products.gke.up import Changes

_MARKS = {"create": "+", "change": "~", "delete": "-"}


@click.group()
def command() -> None:
    """Plan, create, change and delete a GKE cluster for the queues.

    The values have the key `gke` (project, location, bucket …) and the values of `launcher install queues`. Node
    pools follow from the flavors and their quota, rights from the teams: -f cluster.yaml -f queues.yaml.
    """


def _options(verb: Callable[..., Any]) -> Callable[..., Any]:
    @files_option(
        *("-f", "--file", "--values", "files"), text="A values file or the name of a preset; the last has precedence."
    )
    @click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set one value.")
    @functools.wraps(verb)
    def with_plan(*args: Any, files: tuple[str, ...], sets: tuple[str, ...], **options: Any) -> Any:
        if not files and not sets:
            raise click.UsageError("No values are given: use -f FILE. Presets: -f clusters/gke/v6e-standard")
        made = gke_api.plan_cluster(files, sets)
        output.narrate(*(f"Warning: {problem}" for problem in made.warnings))
        return verb(*args, made=made, **options)

    return with_plan


@command.command(cls=ValuesCommand)
@_options
@format_options("sh", "terraform", note=". sh and terraform make no request.")
def plan(made: Plan, form: str) -> int:
    """Show the difference between what exists and the values.

    Changes nothing. With -o sh, print the commands of `up` as a shell script; with -o terraform, print a Terraform
    module (main.tf.json). Values that GKE would refuse are reported with file and line. The exit code is 1 if the
    cluster has differences that GKE cannot change.
    """
    if form == "sh":
        output.emit_exactly(gke_api.cluster_script(made))
        return 0
    if form == "terraform":
        output.emit_exactly(json.dumps(gke_api.cluster_terraform(made), indent=2) + "\n")
        return 0
    from launcher.products.gke import cost

    changes = gke_api.cluster_changes(made)
    full, unpriced = cost.full(made)
    data = {
        "cluster": made.name,
        "project": made.project,
        "location": made.location,
        "steps": [step.as_json() for step in changes.steps],
        "conflicts": list(changes.conflicts),
        "kept": {pool: list(runs) for pool, runs in changes.held.items()},
        "notes": list(changes.notes),
        "idleUsdPerHour": cost.idle(made).usd_per_hour,
        "fullUsdPerHour": full,
        "unpriced": list(unpriced),
    }
    output.emit(data, form, "\n".join(_lines(made, changes)))
    return int(bool(changes.conflicts))


@command.command(cls=ValuesCommand)
@_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would change, without changing it.")
def up(made: Plan, yes: bool, dry_run: bool) -> int:
    """Create the cluster, or change it to match the values.

    Prints the difference, asks, and runs one gcloud command after the other. If it fails or is interrupted, run it
    again: it begins where it stopped. At the end, Kueue, JobSet and the queues are installed.
    """
    changes = gke_api.cluster_changes(made)
    output.narrate(*_lines(made, changes))
    if changes.conflicts:
        raise LauncherError(
            "GKE cannot make these changes; nothing was changed.", "Correct the values, or delete what is named above."
        )
    if dry_run:
        output.narrate("Nothing was changed.")
        return 0
    if not yes and sys.stdin.isatty() and not confirm("Apply these changes?", "Nothing was changed."):
        return 1
    if not yes and not sys.stdin.isatty():
        raise LauncherError(
            "This costs money, and stdin is not a terminal, so nothing was changed.", "To confirm it: --yes."
        )
    gke_api.create_cluster(made, changes, output.narrate)
    output.narrate(f"The cluster {made.name} is ready. Next: launcher doctor")
    return 0


@command.command(cls=ValuesCommand)
@_options
@format_option
def status(made: Plan, form: str) -> int:
    """Show the cluster, its node pools, and how they differ from the values.

    The exit code is 1 if the cluster does not exist or differs.
    """
    changes = gke_api.cluster_changes(made)
    cluster = changes.actual.cluster
    steps = changes.steps
    rows = [(name, *_pool_row(found)) for name, found in changes.actual.pools.items()]
    data = {
        "cluster": made.name,
        "status": "MISSING" if cluster is None else cluster.get("status"),
        "version": (cluster or {}).get("currentMasterVersion"),
        "pools": [dict(zip(("name", "status", "machineType", "nodes"), row, strict=True)) for row in rows],
        "differences": [step.as_json() for step in steps],
        "conflicts": list(changes.conflicts),
    }
    if cluster is None:
        text = f"The cluster {made.name} does not exist in {made.project}, {made.location}."
    else:
        head = (
            f"{made.name}  {cluster.get('status')}  {cluster.get('currentMasterVersion', '')}  {made.location}".rstrip()
        )
        pools = formatting.table([("NODE POOL", "STATUS", "MACHINE TYPE", "NODES"), *rows])
        text = "\n".join([head, "", pools, "", *_difference_lines(changes)])
    output.emit(data, form, text)
    return int(cluster is None or bool(steps or changes.conflicts or changes.held))


@command.command(cls=ValuesCommand)
@_options
@click.option("--delete-bucket", is_flag=True, help="Delete the bucket, too, with all checkpoints.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without deleting it.")
def down(made: Plan, delete_bucket: bool, yes: bool, dry_run: bool) -> int:
    """Delete the cluster and all else that `up` created for it.

    Finds by labels what it created, and keeps everything else. The bucket is kept, unless --delete-bucket is given.
    """
    removal = gke_api.cluster_removal(made, bucket=delete_bucket)
    for step in removal.steps:
        output.narrate(f"- {step.what}{f' ({step.detail})' if step.detail else ''}")
    output.narrate(*(f"Kept: {sentence}" for sentence in removal.kept))
    if not removal.steps:
        output.narrate("There is nothing to delete.")
        return 0
    if dry_run:
        output.narrate("Nothing was deleted.")
        return 0
    if not yes and not sys.stdin.isatty():
        raise LauncherError("stdin is not a terminal, so nothing was deleted.", "To confirm the deletion: --yes.")
    if not yes and not confirm(f"Delete these {len(removal.steps)} resources of {made.project}?"):
        return 1
    gke_api.delete_cluster(made, removal, output.narrate)
    output.narrate(f"The cluster {made.name} is deleted.")
    return 0


@command.command()
@target_options
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the values to a new file.")
def adopt(target: Target, out: Path | None) -> None:
    """Print values that describe an existing cluster.

    Flavors and quota are those of its nodes, found by their labels, on GKE and elsewhere. On GKE, the values have the
    key `gke`, too. Add the teams, and install them: launcher install queues -f FILE.
    """
    adopted = gke_api.adopt_cluster(target)
    output.narrate(*(f"Warning: {note}" for note in adopted.notes))
    text = "# Written by launcher cluster adopt. Quota is what the nodes have now.\n" + dumps(dict(adopted.values))
    if out is None:
        output.emit_exactly(text)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise LauncherError(f"{out} exists already.", "Name another file: --out FILE.") from error
    except OSError as error:
        raise LauncherError(f"{out} cannot be written: {error.strerror}.") from error
    output.narrate(f"The values were written to {out}.")


def _lines(made: Plan, changes: Changes) -> list[str]:
    """Return the difference as lines of text."""
    lines = [f"cluster {made.name}, project {made.project}, {made.location}"]
    lines += _difference_lines(changes)
    return [*lines, "", _price(made)]


def _difference_lines(changes: Changes) -> list[str]:
    steps, conflicts = changes.steps, changes.conflicts
    if not steps and not conflicts and not changes.notes:
        return ["No differences."]
    rows = [(_MARKS[step.action], step.what, step.detail) for step in steps]
    return [
        *(formatting.table(rows, headed=False).splitlines() if rows else []),
        *(f"! {sentence}" for sentence in conflicts),
        *changes.notes,
    ]


def _price(made: Plan) -> str:
    """Return sentences about the price per hour, without runs and if all slices run."""
    from launcher.products.gke import cost

    idle = cost.idle(made)
    full, unpriced = cost.full(made)
    if not idle.parts and not idle.unknown:
        text = "Without runs, no chips run and none are paid for. CPU nodes, storage and GKE's fee come on top."
    else:
        named = "; ".join([*idle.parts, *(f"{pool}: price not known" for pool in idle.unknown)])
        text = f"Without runs, chips cost ${idle.usd_per_hour:,.2f} per hour ({named}). CPU nodes come on top."
    if full:
        text += f" If all slices run: ${full:,.2f} per hour."
    if unpriced:
        text += f" This does not include {', '.join(unpriced)}: no price is known; set it in common.prices."
    return text


def _pool_row(pool: Any) -> tuple[str, str, str]:
    scaling = pool.get("autoscaling") or {}
    nodes = str(pool.get("initialNodeCount") or 0)
    if scaling.get("enabled"):
        low = scaling.get("totalMinNodeCount") or scaling.get("minNodeCount") or 0
        nodes = f"{low} to {scaling.get('totalMaxNodeCount') or scaling.get('maxNodeCount') or 0}"
    return str(pool.get("status") or ""), str((pool.get("config") or {}).get("machineType") or ""), nodes
