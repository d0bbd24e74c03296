from __future__ import annotations

from collections.abc import Sequence

import click

from launcher import api, hooks
from launcher.backends import selection
from launcher.backends.base import BEING_CANCELLED, Backend, RunStatus
from launcher.backends.selection import RunFilter, Selected
from launcher.cli import colour, follow, options, output, run_table
from launcher.cli.selection_options import run_selection
from launcher.errors import LauncherError, UsageError
from launcher.k8s.target import Target


@click.command()
@run_selection
@click.option("--dry-run", is_flag=True, help="Print the runs that would be deleted, without deleting them.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@options.run_target_options
@options.format_option
def command(names: tuple[str, ...], only: RunFilter, dry_run: bool, yes: bool, target: Target, form: str) -> int:
    """Delete runs that have ended, or all runs of a sweep.

    A NAME is a run, a sweep, or a pattern of runs, such as "demo-*". Without a NAME, --state or --older-than select
    among all runs.

    A local run is deleted with its folder: record, log, metrics and checkpoints. For a run on a cluster, only its
    record is deleted; checkpoints and metrics stay in its storage.
    """

    if not names and not only:
        raise UsageError("Name the runs to delete, or select them with --state or --older-than.")
    if len(names) > 1 or only or dry_run or selection.is_pattern(names[0]):
        with api.only_runs(target, ends=True):
            selected = api.select(names, target, only=only, warn=lambda line: output.narrate(f"Warning: {line}"))
        return _delete_selected(selected, set(names), target, dry_run=dry_run, yes=yes, form=form)
    with api.only_runs(target, ends=True):
        backend, status = api.resolve(names[0], target)
    backend.report_progress = output.narrate
    if not isinstance(status, RunStatus):
        return hooks.sweep_verb("delete")(status, backend, target, confirm=not yes, form=form)
    return _delete_one(backend, status, target, yes=yes, form=form)


def _delete_one(backend: Backend, status: RunStatus, target: Target, *, yes: bool, form: str) -> int:
    name = status.name
    if not _can_be_deleted(status):
        raise _active(status, target)
    if not yes:
        options.need_terminal()
        all_of = f"({backend.description})" if backend.description else f"and all of {status.folder}"
        if not options.confirm(f'Delete the run "{name}" {all_of}?'):
            return 1
    if yes and backend.description:
        output.narrate(f'Deleting the run "{name}" ({backend.description})…')
    backend.delete(name)
    output.narrate(f'The run "{name}" is deleted.')
    output.emit(status.as_json(), form, "")
    return 0


def _delete_selected(
    selected: Selected, names: set[str], target: Target, *, dry_run: bool, yes: bool, form: str
) -> int:
    """Delete the selected runs that have ended. Raises LauncherError, and deletes nothing, if a named run is active."""
    for _, status in selected:
        if {status.name, status.sweep} & names and not _can_be_deleted(status):
            raise _active(status, target)
    ended = [(backend, status) for backend, status in selected if _can_be_deleted(status)]
    runs = [status for _, status in ended]
    if left := [status.name for _, status in selected if not _can_be_deleted(status)]:
        output.narrate(f"Left out, because they have not ended: {', '.join(left)}.")
    if not runs:
        output.narrate("There are no such runs to delete.")
        output.emit([], form, "")
        return 0
    if dry_run:
        output.narrate(f"Would delete {_count(runs)}{_places(ended)}:")
        output.emit([run.as_json() for run in runs], form, run_table.table(runs), paint=colour.tables)
        return 0
    if not yes:
        options.need_terminal()
        output.narrate(run_table.table(runs))
        if not options.confirm(f"Delete {_count(runs)}{_places(ended)}?"):
            return 1
    selection.delete(ended)
    output.narrate(f"Deleted {_count(runs)}.")
    output.emit([run.as_json() for run in runs], form, "")
    return 0


def _can_be_deleted(status: RunStatus) -> bool:
    return status.state.ended or status.reason == BEING_CANCELLED  # the backend checks a run that is being cancelled


def _active(status: RunStatus, target: Target) -> LauncherError:
    run = follow.run_argument(status, target)
    return LauncherError(f'The run "{status.name}" is {status.state}.', f"Cancel it first: launcher cancel {run}")


def _count(runs: Sequence[RunStatus]) -> str:
    return f"{len(runs)} runs" if len(runs) != 1 else f'the run "{runs[0].name}"'


def _places(selected: Selected) -> str:
    """Return where the runs are, and what is deleted with them."""
    folders = "its folder" if len(selected) == 1 else "their folders"
    places = dict.fromkeys(backend.description or f"this machine, with {folders}" for backend, _ in selected)
    return f" ({' and '.join(places)})"
