"""Runs that differ in a few values, planned, submitted and looked at together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from launcher.api._backend import backend_for
from launcher.api.forecasts import refuse_misfits
from launcher.api.plans import CHART
from launcher.api.runs import WaitTimeout, preview
from launcher.backends.lookup import resolve
from launcher.config.kinds import RunKind
from launcher.k8s.errors import Unreachable
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.base import Backend, Preview
    from launcher.backends.sweeps.plan import SweepPlan
    from launcher.backends.sweeps.sweep import Sweep, SweepSubmission


def plan_sweep(
    files: Sequence[str],
    sets: Sequence[str],
    sweeps: Sequence[str],
    *,
    name: str | None = None,
    force: bool = False,
) -> SweepPlan:
    """What a sweep of these values would run: a plan for each combination of `sweeps`, the last changing fastest.

    Each of `sweeps` is a key and its values, "train.learning_rate=1e-4,3e-4", read as those of `--set`. The runs are
    called NAME-1, NAME-2, … Raises launcher.config.plan.CheckFailed with all that is wrong with any of them.
    """
    from launcher.backends.sweeps import plan as sweep_plan
    from launcher.config.values.files import chart_defaults, load

    plan = sweep_plan.plan_sweep(load(files, sets), chart_defaults(CHART), sweeps, name=name)
    return replace(plan, plans=tuple(replace(each, force=force) for each in plan.plans))


def preview_sweep(plan: SweepPlan, *, accept_changes: bool = False, target: Target = DEFAULT_TARGET) -> list[Preview]:
    """What `submit_sweep` would do with each run. Creates nothing; raises what `submit_sweep` would raise."""
    from launcher.backends.sweeps import sweep as sweeps

    if plan.kind is not RunKind.LOCAL and not target.includes_cluster:
        return [preview(each, accept_changes=accept_changes, target=target) for each in plan.plans]
    return sweeps.preview(plan, backend_for(plan.plans[0], target), accept_changes=accept_changes)


def submit_sweep(plan: SweepPlan, *, accept_changes: bool = False, target: Target = DEFAULT_TARGET) -> SweepSubmission:
    """Start the sweep's runs, or find or resume those that are there, each by its own name; returns at once.

    Nothing is made where one of them would be refused. A submit that was killed halfway is completed by another.
    """
    from launcher.backends.sweeps import sweep as sweeps

    refuse_misfits(*plan.plans)
    return sweeps.submit(plan, backend_for(plan.plans[0], target), accept_changes=accept_changes)


def find_sweep(name: str, target: Target = DEFAULT_TARGET) -> tuple[Backend, Sweep]:
    """The sweep called `name` and the backend that answers for it; of a cluster's runs without steps and losses."""
    backend, found = resolve(f"sweep/{name}", target)
    return backend, cast("Sweep", found)


def sweep(name: str, *, target: Target = DEFAULT_TARGET) -> Sweep:
    """The sweep now: its runs with their steps and losses, and which of them is the best."""
    from launcher.backends.sweeps import sweep as sweeps

    backend, found = find_sweep(name, target)
    return sweeps.with_progress(found, backend)


def wait_sweep(name: str, *, timeout: float | None = None, target: Target = DEFAULT_TARGET) -> Sweep:
    """The sweep once all its runs have ended; raises WaitTimeout after `timeout` seconds."""
    from launcher.backends.sweeps import sweep as sweeps

    backend, now = find_sweep(name, target)
    deadline = None if timeout is None else time.monotonic() + timeout
    for seen in sweeps.watch(now, backend, deadline):
        now = now if isinstance(seen, Unreachable) else seen
    if not now.ended:
        states = ", ".join(f"{count} {state}" for state, count in now.counts.items())
        raise WaitTimeout(f'Of the sweep "{name}" {states} after {timeout:g} s; they go on.')
    return sweeps.with_progress(now, backend)


def cancel_sweep(name: str, *, target: Target = DEFAULT_TARGET) -> Sweep:
    """Cancel all runs of the sweep that have not ended, those that wait first. Idempotent."""
    from launcher.backends.sweeps import sweep as sweeps

    backend, found = find_sweep(name, target)
    return sweeps.cancel(found, backend)


def delete_sweep(name: str, *, target: Target = DEFAULT_TARGET) -> None:
    """Remove all runs of a sweep that has ended, as `delete` does; none where one of them goes on."""
    from launcher.backends.sweeps import sweep as sweeps

    backend, found = find_sweep(name, target)
    sweeps.delete(found, backend)
