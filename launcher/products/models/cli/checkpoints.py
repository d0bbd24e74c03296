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
        listed = weights.checkpoints(name, target=target)
    except api.IsSweep as error:
        _of_sweep([run.name for run in error.sweep.runs], target, form)
        return
    _print([listed], listed, form)


def _of_sweep(runs: Sequence[str], target: Target, form: str) -> None:
    """Print the checkpoints of the runs; a run without any is named on stderr. Raises LauncherError if none has any."""
    listed, errors = [], []
    for run in runs:
        try:
            listed.append(weights.checkpoints(run, target=target))
        except LauncherError as error:
            errors.append(error)
    if not listed:
        raise errors[0]
    output.narrate(*(error.message for error in errors))
    _print(listed, listed, form)


def _print(listed: Sequence[Checkpoints], data: Any, form: str) -> None:
    output.narrate(*(note for of_run in listed for note in of_run.notes))
    output.emit(data, form, _table(listed))
    if form == "text":  # the other forms contain the problems
        for of_run in listed:
            run = f"{of_run.name}, " if len(listed) > 1 else ""
            broken = [checkpoint for checkpoint in of_run.checkpoints if checkpoint.whole is False]
            output.narrate(*(f"{run}{checkpoint.step} is incomplete: {checkpoint.problem}." for checkpoint in broken))


def _table(listed: Sequence[Checkpoints]) -> str:
    rows = [checkpoint for of_run in listed for checkpoint in of_run.checkpoints]
    cells = {
        "RUN": [of_run.name if len(listed) > 1 else "" for of_run in listed for _ in of_run.checkpoints],
        "STEP": [str(checkpoint.step) for checkpoint in rows],
        "AFTER": [after(checkpoint.step) for checkpoint in rows],
        "SIZE": ["" if checkpoint.bytes is None else formatting.size(checkpoint.bytes) for checkpoint in rows],
        "SAVED": [formatting.local_time(checkpoint.saved) for checkpoint in rows],
        "HELD-OUT LOSS": [_loss(checkpoint) for checkpoint in rows],
        "NOTES": [_notes(checkpoint) for checkpoint in rows],
    }
    columns = {title: column for title, column in cells.items() if any(column)}
    return formatting.table([tuple(columns), *zip(*columns.values(), strict=True)])


def _loss(checkpoint: Checkpoint) -> str:
    if checkpoint.eval_loss is None:
        return ""
    return f"{checkpoint.eval_loss:.4f}" + ("" if checkpoint.evaluated else f" (after {checkpoint.eval_step} steps)")


def _notes(checkpoint: Checkpoint) -> str:
    words = ["best"] * checkpoint.best + ["last"] * checkpoint.last + ["incomplete"] * (checkpoint.whole is False)
    return ", ".join(words)
