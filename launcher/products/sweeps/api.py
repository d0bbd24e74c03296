"""Submit, read and end sweeps: runs that differ in a few values."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from launcher.api._backend import backend_for
from launcher.api._values import Files, Sets, load
from launcher.api.plans import CHART, refuse_misfits
from launcher.api.runs import WaitTimeout
from launcher.api.submission import preview
from launcher.backends.lookup import resolve
from launcher.config.kinds import RunKind
from launcher.k8s.errors import Unreachable
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.common.named_runs import with_progress

if TYPE_CHECKING:
    from launcher.backends.base import Backend, Preview
    from launcher.backends.sweeps import Sweep
    from launcher.products.sweeps.plan import SweepPlan, Sweeps
    from launcher.products.sweeps.submission import SweepSubmission


def plan_sweep(
    files: Files,
    sets: Sets,
    sweeps: Sweeps,
    *,
    name: str | None = None,
    force: bool = False,
) -> SweepPlan:
    """Return the plan of a sweep, with a run for each combination of `sweeps`; the last one changes fastest.

    Each of `sweeps` is a key with its values, "train.learning_rate=1e-4,3e-4", in the syntax of `--set`; or `sweeps` is
    a mapping of keys to lists of values, {"train.learning_rate": [1e-4, 3e-4]}. The runs are named NAME-1, NAME-2, …
    Raises launcher.config.plan.CheckFailed with the problems of all runs.
    """
    from launcher.config.values.files import chart_defaults
    from launcher.products.sweeps import plan as sweep_plan

    plan = sweep_plan.plan_sweep(load(files, sets), chart_defaults(CHART), sweeps, name=name)
    return replace(plan, plans=tuple(replace(each, force=force) for each in plan.plans))


def preview_sweep(plan: SweepPlan, *, accept_changes: bool = False, target: Target = DEFAULT_TARGET) -> list[Preview]:
    """Return what `submit_sweep` would do with each run. Creates nothing; raises what `submit_sweep` would raise."""
    from launcher.products.sweeps import submission

    if plan.kind is not RunKind.LOCAL and not target.includes_cluster:
        return [preview(each, accept_changes=accept_changes, target=target) for each in plan.plans]
    return submission.preview(plan, backend_for(plan.plans[0], target), accept_changes=accept_changes)


def submit_sweep(plan: SweepPlan, *, accept_changes: bool = False, target: Target = DEFAULT_TARGET) -> SweepSubmission:
    """Start the runs of the sweep, or find or resume the existing ones by name. Returns immediately.

    Creates nothing if one of the runs would be rejected. Submit again to complete a submit that was killed.
    """
    from launcher.products.sweeps import submission

    refuse_misfits(*plan.plans)
    return submission.submit(plan, backend_for(plan.plans[0], target), accept_changes=accept_changes)


def find_sweep(name: str, target: Target = DEFAULT_TARGET) -> tuple[Backend, Sweep]:
    """Return the sweep called `name`, without the steps and losses of runs on a cluster, and its backend."""
    backend, run = resolve(f"sweep/{name}", target)
    return backend, cast("Sweep", run)


def sweep(name: str, *, target: Target = DEFAULT_TARGET) -> Sweep:
    """Return the current sweep: its runs with their steps and losses, and the best of them."""

    backend, current = find_sweep(name, target)
    return with_progress(current, backend)


def wait_sweep(
    name: str,
    *,
    timeout: float | None = None,
    target: Target = DEFAULT_TARGET,
    progress: Callable[[Sweep], None] = lambda _: None,
) -> Sweep:
    """Wait until all runs of the sweep have ended, and return it. Raises WaitTimeout after `timeout` seconds.

    `progress` is called with the sweep each time that it is read, every few seconds: with `print(sweep.counts)`, a
    notebook shows how many runs have ended.
    """
    from launcher.products.sweeps import watching

    backend, now = find_sweep(name, target)
    deadline = None if timeout is None else time.monotonic() + timeout
    for seen in watching.watch(now, backend, deadline):
        if not isinstance(seen, Unreachable):
            now = seen
            progress(now)
    if not now.ended:
        states = ", ".join(f"{count} {state}" for state, count in now.counts.items())
        raise WaitTimeout(f'Timed out after {timeout:g} s: the sweep "{name}" has {states}. Its runs continue.')
    return with_progress(now, backend)


def cancel_sweep(name: str, *, target: Target = DEFAULT_TARGET) -> Sweep:
    """Cancel all runs of the sweep that have not ended, waiting runs first. Idempotent."""

    from launcher.products.sweeps import watching

    backend, current = find_sweep(name, target)
    return watching.cancel(current, backend)


def delete_sweep(name: str, *, target: Target = DEFAULT_TARGET) -> None:
    """Delete all runs of a sweep that has ended, as `delete` does. Deletes nothing if one of them is active."""

    from launcher.products.sweeps import watching

    backend, current = find_sweep(name, target)
    watching.delete(current, backend)
