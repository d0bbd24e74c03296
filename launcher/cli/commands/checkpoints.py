from __future__ import annotations

import click

from launcher import api, formatting
from launcher.cli import output
from launcher.cli.options import format_option, run_argument, run_target_options
from launcher.k8s.target import Target
from launcher.weights.checkpoints import Checkpoint, Checkpoints


@click.command()
@run_argument
@run_target_options
@format_option
def command(name: str, target: Target, form: str) -> None:
    """List the checkpoints of a run, with their held-out losses.

    NAME is a run, a run's folder (with a slash in it: ./NAME), or the URL of such a folder in a bucket
    (gs://BUCKET/NAME). STEP is the number of the checkpoint's folder: its last step, counted from 0. The held-out loss
    is that of the evaluation right after this step; of the nearest evaluation before, it names the steps. The best
    checkpoint is the whole one with the lowest held-out loss.

    A checkpoint is incomplete while it is written, and if its writer was killed. For a run whose storage is a
    PersistentVolumeClaim, the steps are read from the log, which does not show whether they are whole.
    """

    found = api.checkpoints(name, target=target)
    output.narrate(*found.notes)
    output.emit(found.as_json(), form, _table(found))
    if form == "text":  # the other forms contain the problems
        output.narrate(
            *(f"{one.step} is incomplete: {one.problem}." for one in found.checkpoints if one.whole is False)
        )


def _table(found: Checkpoints) -> str:
    cells = {
        "STEP": [str(each.step) for each in found.checkpoints],
        "SIZE": ["" if each.bytes is None else formatting.size(each.bytes) for each in found.checkpoints],
        "SAVED": [formatting.local_time(each.saved) for each in found.checkpoints],
        "HELD-OUT LOSS": [_loss(each) for each in found.checkpoints],
        "NOTES": [_notes(each) for each in found.checkpoints],
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
