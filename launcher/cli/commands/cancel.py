from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher import api, hooks
from launcher.backends import selection
from launcher.backends.base import Backend, RunStatus
from launcher.backends.lookup import look_again
from launcher.cli import output
from launcher.cli.options import format_option, run_target_options
from launcher.cli.run_arguments import run_names_argument
from launcher.k8s.target import Target

if TYPE_CHECKING:
    from launcher.backends.sweeps import Sweep


@click.command()
@run_names_argument
@run_target_options
@format_option
def command(names: tuple[str, ...], target: Target, form: str) -> None:
    """Stop runs or sweeps, and release their resources.

    A NAME is a run, a sweep, or a pattern of runs, such as "demo-*". The record and the checkpoints of a run are kept,
    so submitting it again resumes it. A run that has ended is not changed.
    """

    if len(names) > 1 or selection.is_pattern(names[0]):
        _cancel_all(names, target, form)
        return

    def find() -> tuple[Backend, RunStatus | Sweep]:
        return api.run_or_model(names[0], lambda: api.resolve(names[0], target), target=target, ends=True)

    backend, before = look_again(find, target)
    backend.report_progress = output.narrate
    if not isinstance(before, RunStatus):
        hooks.sweep_verb("cancel")(before, backend, target, form=form)
        return
    name = before.name
    if not before.state.ended:
        of = f" ({backend.description})" if backend.description else ""
        output.narrate(f'Cancelling the run "{name}"{of}…')
    status = backend.cancel(name)
    output.narrate(
        f'The run "{name}" ' + ("is cancelled." if status.state == "cancelled" else f"has already {status.state}.")
    )
    output.emit(status.as_json(), form, "")


def _cancel_all(names: tuple[str, ...], target: Target, form: str) -> None:
    with api.only_runs(target, ends=True):
        selected = look_again(
            lambda: api.select(names, target, warn=lambda line: output.narrate(f"Warning: {line}")), target
        )
    active = [(backend, status) for backend, status in selected if status.can_be_cancelled]
    for backend, _ in active:
        backend.report_progress = output.narrate
    now: list[RunStatus] = []
    if active:
        output.narrate(f"Cancelling {', '.join(status.name for _, status in active)}…")
        now = selection.cancel(active)
        output.narrate(f"Cancelled {len(now)} runs." if len(now) != 1 else f'The run "{now[0].name}" is cancelled.')
    else:
        output.narrate("All these runs have already ended.")
    output.emit([status.as_json() for status in now], form, "")
