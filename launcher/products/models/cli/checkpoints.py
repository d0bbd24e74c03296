from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from launcher import api, formatting
from launcher.cli import output
from launcher.cli.options import format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.errors import LauncherError
from launcher.k8s.target import Target
from launcher.products.models.api import weights
from launcher.products.models.weights.checkpoints import Checkpoint, Checkpoints, after


@click.command()
@run_argument
@run_target_options
@format_option
def command(name: str, target: Target, form: str) -> None:
    """List the checkpoints of a run, with their held-out losses.

    NAME is a run, a sweep, a run's folder (with a slash in it: ./NAME), or the URL of such a folder in a bucket
    (gs://BUCKET/NAME). For a sweep, the result is a list with -o json or yaml. STEP is the number of the checkpoint's
    folder and the value of --step. MaxText counts it from 0, so AFTER, the number of steps that were done, is one more.
    The held-out loss is that of the evaluation right after these steps; of the nearest evaluation before, it names the
    steps. The best checkpoint is the whole one with the lowest held-out loss.

    A checkpoint is incomplete while it is written, and if its writer was killed. For a run whose storage is a
    PersistentVolumeClaim, the steps are read from the log, which does not show whether they are whole.
    """

    try:
        found = weights.checkpoints(name, target=target)
    except api.IsSweep as error:
        _of_sweep([run.name for run in error.sweep.runs], target, form)
        return
    _print([found], found, form)


def _of_sweep(runs: Sequence[str], target: Target, form: str) -> None:
    """Print the checkpoints of the runs; a run without any is named on stderr. Raises LauncherError if none has any."""
    found, errors = [], []
    for run in runs:
        try:
            found.append(weights.checkpoints(run, target=target))
        except LauncherError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    output.narrate(*(error.message for error in errors))
    _print(found, found, form)


def _print(found: Sequence[Checkpoints], data: Any, form: str) -> None:
    output.narrate(*(note for each in found for note in each.notes))
    output.emit(data, form, _table(found))
    if form == "text":  # the other forms contain the problems
        for each in found:
            run = f"{each.name}, " if len(found) > 1 else ""
            broken = [one for one in each.checkpoints if one.whole is False]
            output.narrate(*(f"{run}{one.step} is incomplete: {one.problem}." for one in broken))


def _table(found: Sequence[Checkpoints]) -> str:
    rows = [each for one in found for each in one.checkpoints]
    cells = {
        "RUN": [one.name if len(found) > 1 else "" for one in found for _ in one.checkpoints],
        "STEP": [str(each.step) for each in rows],
        "AFTER": [after(each.step) for each in rows],
        "SIZE": ["" if each.bytes is None else formatting.size(each.bytes) for each in rows],
        "SAVED": [formatting.local_time(each.saved) for each in rows],
        "HELD-OUT LOSS": [_loss(each) for each in rows],
        "NOTES": [_notes(each) for each in rows],
    }
    columns = {title: column for title, column in cells.items() if any(column)}
    return formatting.table([tuple(columns), *zip(*columns.values(), strict=True)])


def _loss(one: Checkpoint) -> str:
    if one.eval_loss is None:
        return ""
    return f"{one.eval_loss:.4f}" + ("" if one.evaluated else f" (after {one.eval_step} steps)")


def _notes(one: Checkpoint) -> str:
    words = ["best"] * one.best + ["last"] * one.last + ["incomplete"] * (one.whole is False)
    return ", ".join(words)
