"""The verbs' implementations if NAME is a sweep, or if --sweep creates one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from launcher import api, formatting
from launcher.cli import colour, options, output
from launcher.errors import Detached
from launcher.products.common.named_runs import with_progress
from launcher.products.sweeps import display, submission, watching
from launcher.products.sweeps.logs import logs

if TYPE_CHECKING:
    from launcher.backends.base import Backend
    from launcher.backends.sweeps import Sweep
    from launcher.k8s.target import Target
    from launcher.products.sweeps.plan import SweepPlan

# Checking more runs than this takes long enough for a message.
_MANY = 10


def verb(name: str) -> Callable[..., Any]:
    """Return the implementation of a command for a sweep."""
    verbs: Sequence[Callable[..., Any]] = (submit, status, attach, wait, cancel, delete, logs)
    return next(verb for verb in verbs if verb.__name__ == name)


def submit(
    files: Sequence[str],
    sets: Sequence[str],
    texts: Sequence[str],
    target: Target,
    *,
    name: str | None,
    force: bool,
    dry_run: bool,
    accept_changes: bool,
    detach: bool,
    form: str,
) -> int:
    """Start the runs of `submit --sweep …`, or with `dry_run` print them."""
    plan = api.plan_sweep(files, sets, texts, name=name, force=force)
    output.narrate(*(f"Warning: {warning}" for warning in plan.warnings))
    api.refuse_misfits(*plan.plans)
    if dry_run:
        return _preview(plan, target, accept_changes=accept_changes, form=form)
    return _submit(plan, target, accept_changes=accept_changes, detach=detach, form=form)


def _preview(plan: SweepPlan, target: Target, *, accept_changes: bool, form: str) -> int:
    """Print the runs of `submit --sweep … --dry-run` with their differences, or their configs as JSON or YAML."""
    previews = api.preview_sweep(plan, accept_changes=accept_changes, target=target)
    output.narrate(*dict.fromkeys(line for preview in previews for line in preview.message.splitlines()))
    members = [each.member for each in plan.plans if each.member is not None]
    cells = [[formatting.swept(value) for value in member.values.values()] for member in members]
    table = formatting.table(
        [
            ("RUN", *display.titles(plan.keys)),
            *((each.name, *row) for each, row in zip(plan.plans, cells, strict=True)),
        ]
    )
    output.emit([preview.config for preview in previews], form, table)
    return 0


def _submit(plan: SweepPlan, target: Target, *, accept_changes: bool, detach: bool, form: str) -> int:
    backend = api.backend_for(plan.plans[0], target)
    if backend.description:
        output.narrate(f"Submitting to {backend.description}.")
    if len(plan.plans) > _MANY:
        output.narrate(f"Checking {len(plan.plans)} runs before the first is created…")
    try:
        submitted = submission.submit(plan, backend, accept_changes=accept_changes)
    except KeyboardInterrupt:
        raise Detached(
            f'Interrupted: some runs may be missing; the created runs continue. Submit "{plan.name}" again '
            f"to create the others. To show the created runs: launcher status {plan.name}{backend.cli_args}"
        ) from None
    output.narrate(submitted.message)
    sweep = submitted.sweep
    if detach:
        if not sweep.ended:
            output.narrate(display.come_back(sweep, target))
        output.emit(sweep.as_json(), form, "")
        return 0
    return attach(sweep, backend, target, form=form)


def attach(sweep: Sweep, backend: Backend, target: Target, *, form: str) -> int:
    """Follow the sweep until all its runs have ended, print the result, and return the command's exit code."""
    sweep = display.follow(backend, sweep, target)
    output.emit(sweep.as_json(), form, display.summary(sweep), paint=colour.tables)
    return display.exit_code(sweep)


def wait(sweep: Sweep, backend: Backend, target: Target, *, timeout: float | None, form: str) -> int:
    sweep = api.wait_sweep(sweep.name, timeout=timeout, target=target)
    output.emit(sweep.as_json(), form, display.summary(sweep), paint=colour.tables)
    return display.exit_code(sweep)


def cancel(sweep: Sweep, backend: Backend, target: Target, *, form: str) -> int:
    going = sum(not run.state.ended for run in sweep.runs)
    of = f" ({backend.description})" if backend.description else ""
    if going:
        output.narrate(f'Cancelling {going} of the {len(sweep.runs)} runs of the sweep "{sweep.name}"{of}…')
    sweep = watching.cancel(sweep, backend)
    output.narrate(display.line(sweep))
    output.emit(sweep.as_json(), form, "")
    return 0


def delete(sweep: Sweep, backend: Backend, target: Target, *, confirm: bool, form: str) -> int:
    watching.check_ended(sweep, backend)
    where = f" ({backend.description})" if backend.description else " and their folders"
    if confirm:
        options.need_terminal()
        if not options.confirm(f'Delete the {len(sweep.runs)} runs of the sweep "{sweep.name}"{where}?'):
            return 1
    watching.delete(sweep, backend)
    output.narrate(f'The {len(sweep.runs)} runs of the sweep "{sweep.name}" are deleted.')
    output.emit(sweep.as_json(), form, "")
    return 0


def status(sweep: Sweep, backend: Backend, target: Target, *, watch: bool, form: str) -> int:
    """Print the status of the sweep; with `watch`, follow it first until it ends."""
    sweep = display.follow(backend, sweep, target, cancel_stuck=False) if watch else with_progress(sweep, backend)
    output.emit(sweep.as_json(), form, display.overview(sweep), paint=colour.tables)
    return 0
