from __future__ import annotations

from dataclasses import replace

import click

from launcher import api, hooks
from launcher.backends.base import RunStatus, State
from launcher.cli import colour, follow, output, status_text
from launcher.cli.options import format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.errors import LauncherError, UsageError
from launcher.k8s.target import Target


@click.command()
@run_argument
@click.option("--watch", is_flag=True, help="Show the status of a run or a sweep again and again, until it ends.")
@run_target_options
@format_option
def command(name: str, watch: bool, target: Target, form: str) -> None:
    """Show the status of a run, a sweep, a served model or a long-lived Ray cluster.

    A run that waits in a queue is shown with its expected start, if the cluster's queues can be read; launcher simulate
    shows what this depends on.

    With --watch, a terminal shows a table that changes; without a terminal, a line is printed on each change. The
    status at the end goes to stdout.
    """

    try:
        backend, run = api.run_or_model(name, lambda: api.resolve(name, target), target=target)
    except api.IsServedModel:
        if watch:
            raise UsageError(f"{name} is a served model; --watch shows a run or a sweep.") from None
        for model in api.models(name, target=target):
            output.emit(model, form, model.as_text(), paint=colour.status)
        return
    except LauncherError:
        # A Ray cluster is also shown while its head does not answer, for example while it starts.
        shown = hooks.ray_cluster(name, target)
        if shown is None:
            raise
        if watch:
            raise UsageError(f"{name} is a long-lived Ray cluster; --watch shows a run or a sweep.") from None
        output.emit(shown[0], form, shown[1], paint=colour.status)
        return
    if not isinstance(run, RunStatus):
        hooks.sweep_verb("status")(run, backend, target, watch=watch, form=form)
        return
    if watch and not run.state.ended:
        run = follow.follow(backend, run, target, live=status_text.StatusTable, cancel_stuck=False)
    starts = None
    if run.in_cluster and run.queue and run.state in (State.QUEUED, State.PREEMPTED):
        starts = hooks.expected_starts(replace(target, namespace=run.namespace), name=run.name).get(run.name)
    data = run.as_json()
    if starts is not None:
        data["starts"] = dict(starts.data)
    output.emit(data, form, status_text.text(run, starts="" if starts is None else starts.text), paint=colour.status)
