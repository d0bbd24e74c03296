"""The table of runs that list prints, and that delete shows before it asks."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

from launcher import formatting
from launcher.backends.base import RunStatus


def table(runs: Sequence[RunStatus], starts: Sequence[str] = ()) -> str:
    """Return the table of the runs, with the columns that have a value in at least one run.

    `starts` has the expected start of each run, or "".
    """
    many = len({run.namespace for run in runs if run.in_cluster}) > 1
    cells = {
        "NAME": [run.name for run in runs],
        "NAMESPACE": [run.namespace if many else "" for run in runs],
        "TEAM": [run.team for run in runs],
        "KIND": [run.kind for run in runs],
        "MADE BY": ["another client" if run.foreign else "" for run in runs],
        "SLICES": [run.machines for run in runs],
        "STATE": [run.state.value for run in runs],
        "UNCOUNTED": [f"{run.uncounted_chips} chips" if run.uncounted_chips else "" for run in runs],
        "AGE": [formatting.age(run.submitted) for run in runs],
        "PRIORITY": [run.priority for run in runs],
        "QUEUE": [f"{run.queue} #{run.position}" if run.position else run.queue for run in runs],
        "STARTS": list(starts) or [""] * len(runs),
        "STEP": [_step(run) for run in runs],
        "SWEPT": [
            ", ".join(f"{key} {formatting.swept(value)}" for key, value in run.sweep_values.items()) for run in runs
        ],
        "LOSS": ["" if run.loss is None else f"{run.loss:.3f}" for run in runs],
        "REASON": [shorten(run.reason, 60, placeholder=" …") if run.state.value == "failed" else "" for run in runs],
    }
    columns = {title: column for title, column in cells.items() if any(column)}
    return formatting.table([tuple(columns), *zip(*columns.values(), strict=True)])


def _step(run: RunStatus) -> str:
    done = "" if run.step is None else str(run.step)
    return f"{done}/{run.steps}" if done and run.steps else done
