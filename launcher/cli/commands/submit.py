from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli.options import format_option, name_option, submit_target_options, values_options

if TYPE_CHECKING:
    from launcher.k8s.target import Target


@click.command()
@values_options
@name_option
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="KEY=V1,V2",
    help="A run for each of these values; several: for each combination.",
)
@click.option("--detach", is_flag=True, help="Return once the run has started, instead of following it.")
@click.option("--dry-run", is_flag=True, help="Print the run config and say what would happen; create nothing.")
@click.option("--force", is_flag=True, help="Submit what could never start or does not fit.")
@click.option("--continue", "accept_changes", is_flag=True, help="Go on from the last checkpoint with new values.")
@submit_target_options
@format_option
def command(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    name: str | None,
    sweeps: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    force: bool,
    accept_changes: bool,
    target: Target,
    form: str,
) -> int:
    """Check the values, start the run, and follow it until it ends.

    run.kind says where it goes: to this machine, or to a cluster, whose namespace is the team's. The exit code is the
    run's: 0 when it succeeded, 1 when it failed or was cancelled. Ctrl-C stops following, never the run.

    A cluster is asked first whether the run could ever start there: its queue, its quota, what its pods name. A run
    that launcher forecast has found not to fit in its chips' memory is refused.

    Submitting a name again follows a run that goes on, and resumes one that has failed, was cancelled or interrupted
    from its last checkpoint.

    --sweep makes a run for each value, called NAME-1, NAME-2, …; NAME then stands for all of them in status, wait,
    cancel and delete. On this machine they go one after another.
    """
    from launcher import api
    from launcher.cli import follow, output

    if sweeps:
        from launcher.cli import sweep_verbs

        swept = api.plan_sweep(files, sets, sweeps, name=name, force=force)
        output.narrate(*(f"Warning: {warning}" for warning in swept.warnings))
        api.refuse_misfits(*swept.plans)
        if dry_run:
            return sweep_verbs.preview(swept, target, accept_changes=accept_changes, form=form)
        return sweep_verbs.submit(swept, target, accept_changes=accept_changes, detach=detach, form=form)
    plan = api.plan(files, sets, name=name, force=force)
    output.narrate(*(f"Warning: {warning}" for warning in plan.warnings))
    api.refuse_misfits(plan)
    if dry_run:
        preview = api.preview(plan, accept_changes=accept_changes, target=target)
        output.narrate(preview.said)
        output.emit(preview.config, "yaml" if form == "text" else form, "")
        return 0
    backend = api.backend_for(plan, target)
    backend.report_progress = output.narrate
    if backend.where:
        output.narrate(f"Submitting to {backend.where}.")
    submission = backend.submit(plan, accept_changes=accept_changes)
    output.narrate(submission.said)
    status = submission.status
    if detach:
        if not status.state.ended:
            output.narrate(follow.come_back(status, target))
        output.emit(status.as_json(), form, "")
        return 0
    status = follow.follow(backend, status, target)
    output.emit(status.as_json(), form, follow.summary(status, target))
    return follow.exit_code(status)
