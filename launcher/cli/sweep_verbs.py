"""The verbs' implementations if NAME is a sweep, or if --sweep creates one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher import api, formatting
from launcher.backends.sweeps import submission
from launcher.backends.sweeps import sweep as sweeps
from launcher.cli import colour, options, output
from launcher.cli import follow_sweep as sweep_follow
from launcher.errors import Detached

if TYPE_CHECKING:
    from launcher.backends.base import Backend
    from launcher.backends.sweeps.plan import SweepPlan
    from launcher.backends.sweeps.sweep import Sweep
    from launcher.k8s.target import Target

# Checking more runs than this takes long enough for a message.
_MANY = 10


def preview(plan: SweepPlan, target: Target, *, accept_changes: bool, form: str) -> int:
    """Print the runs of `submit --sweep … --dry-run` with their differences, or their configs as JSON or YAML."""
    previews = api.preview_sweep(plan, accept_changes=accept_changes, target=target)
    output.narrate(*dict.fromkeys(line for preview in previews for line in preview.message.splitlines()))
    members = [each.member for each in plan.plans if each.member is not None]
    cells = [[formatting.swept(value) for value in member.values.values()] for member in members]
    table = formatting.table(
        [
            ("RUN", *sweep_follow.titles(plan.keys)),
            *((each.name, *row) for each, row in zip(plan.plans, cells, strict=True)),
        ]
    )
    output.emit([preview.config for preview in previews], form, table)
    return 0


def submit(plan: SweepPlan, target: Target, *, accept_changes: bool, detach: bool, form: str) -> int:
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
            output.narrate(sweep_follow.come_back(sweep, target))
        output.emit(sweep.as_json(), form, "")
        return 0
    return follow(sweep, backend, target, form)


def follow(sweep: Sweep, backend: Backend, target: Target, form: str) -> int:
    """Follow the sweep until all its runs have ended, print the result, and return the command's exit code."""
    sweep = sweep_follow.follow(backend, sweep, target)
    output.emit(sweep.as_json(), form, sweep_follow.summary(sweep), paint=colour.tables)
    return sweep_follow.exit_code(sweep)


def wait(sweep: Sweep, target: Target, *, timeout: float | None, form: str) -> int:
    sweep = api.wait_sweep(sweep.name, timeout=timeout, target=target)
    output.emit(sweep.as_json(), form, sweep_follow.summary(sweep), paint=colour.tables)
    return sweep_follow.exit_code(sweep)


def cancel(sweep: Sweep, backend: Backend, form: str) -> None:
    going = sum(not run.state.ended for run in sweep.runs)
    of = f" ({backend.description})" if backend.description else ""
    if going:
        output.narrate(f'Cancelling {going} of the {len(sweep.runs)} runs of the sweep "{sweep.name}"{of}…')
    sweep = sweeps.cancel(sweep, backend)
    output.narrate(sweep_follow.line(sweep))
    output.emit(sweep.as_json(), form, "")


def delete(sweep: Sweep, backend: Backend, *, confirm: bool, form: str) -> int:
    sweeps.check_ended(sweep, backend)
    where = f" ({backend.description})" if backend.description else " and their folders"
    if confirm:
        options.need_terminal()
        if not options.confirm(f'Delete the {len(sweep.runs)} runs of the sweep "{sweep.name}"{where}?'):
            return 1
    sweeps.delete(sweep, backend)
    output.narrate(f'The {len(sweep.runs)} runs of the sweep "{sweep.name}" are deleted.')
    output.emit(sweep.as_json(), form, "")
    return 0
