from __future__ import annotations

import click

from launcher import api, hooks
from launcher.cli import follow, output
from launcher.cli.options import format_option, submit_target_options
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import name_option, values_options
from launcher.config.plan import without_defaults
from launcher.k8s.target import Target


@click.command(cls=ValuesCommand)
@values_options
@name_option
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="KEY=V1,V2",
    help="Start a run for each value; if repeated, a run for each combination.",
)
@click.option("--detach", is_flag=True, help="Return once the run has started, instead of following it.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would happen and the run config (with -o, including defaults), and create nothing.",
)
@click.option("--force", is_flag=True, help="Submit a run even if it can never start or does not fit.")
@click.option("--continue", "accept_changes", is_flag=True, help="Continue from the last checkpoint with new values.")
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

    run.kind selects where the run goes: to this machine, or to a cluster, in the namespace of the team. The exit code
    is 0 if the run succeeds, and 1 if it fails or is cancelled. Ctrl-C stops following, but not the run; launcher
    attach follows it again.

    Before a run is created in a cluster, its queue, its quota and the objects that its pods name are checked: a run
    that can never start there is rejected. So is a run that does not fit in the memory of its chips according to an
    earlier launcher forecast.

    If a run with the name exists, submit follows it while it is active, and resumes it from its last checkpoint if it
    failed, was cancelled or was interrupted.

    If slice.any has alternatives that need an object of their own, submit selects the first whose quota is free. While
    it follows the run, it tries the next one if the run has waited too long for its machines.

    --sweep starts a run for each value, named NAME-1, NAME-2, …. On this machine, they run one after another. In most
    verbs, NAME selects all of them; export, generate and serve use the best one.
    """

    if sweeps:
        return hooks.sweep_verb("submit")(
            *(files, sets, sweeps, target),
            name=name,
            force=force,
            dry_run=dry_run,
            accept_changes=accept_changes,
            detach=detach,
            form=form,
        )
    plan = api.plan(files, sets, name=name, force=force)
    output.narrate(*(f"Warning: {warning}" for warning in plan.warnings))
    backend = None
    if plan.others and target.includes_cluster:
        backend = api.backend_for(plan, target)
        plan, notes = api.choose_alternative(plan, backend)
        output.narrate(*notes)
    api.refuse_misfits(plan)
    if dry_run:
        preview = (
            api.preview(plan, accept_changes=accept_changes, target=target)
            if backend is None
            else backend.preview(plan, accept_changes=accept_changes)
        )
        output.narrate(preview.message)
        expected = hooks.expected_start_of(preview.waiting, target) if preview.waiting else None
        if expected is not None:
            output.narrate(expected.sentence)
        config = without_defaults(preview.config) if form == "text" else preview.config
        output.emit(config, "yaml" if form == "text" else form, "")
        return 0
    backend = backend or api.backend_for(plan, target)
    backend.report_progress = output.narrate
    if backend.description:
        output.narrate(f"Submitting to {backend.description}.")
    submission = backend.submit(plan, accept_changes=accept_changes)
    output.narrate(submission.message)
    if accept_changes and submission.created and submission.status.attempt == 1:
        output.narrate(f'Warning: There was no run "{plan.name}" to continue, so this is a new run.')
    status = submission.status
    if detach:
        if not status.state.ended:
            if plan.others:
                output.narrate("Warning: Only a submit without --detach tries another alternative of slice.any later.")
            output.narrate(follow.come_back(status, target))
        output.emit(status.as_json(), form, "")
        return 0
    values = follow.values_arguments(files, sets)
    alternatives = api.Alternatives(plan, backend)
    return follow.to_the_end(backend, status, target, form, values=values, alternatives=alternatives)
