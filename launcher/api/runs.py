"""A run's life: submit, status, logs, wait, cancel, delete."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from launcher.api._backend import backend_for
from launcher.api.forecasts import refuse_misfits
from launcher.backends.base import found_or_deleted
from launcher.backends.lookup import find
from launcher.config.kinds import RunKind
from launcher.errors import ExitCode, LauncherError
from launcher.k8s.errors import Unreachable
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.base import Preview, RunStatus, Submission
    from launcher.config.plan import LaunchPlan


class WaitTimeout(LauncherError):
    """`wait` ran out of time; the run goes on."""

    exit_code = ExitCode.TIMEOUT


def preview(plan: LaunchPlan, *, accept_changes: bool = False, target: Target = DEFAULT_TARGET) -> Preview:
    """What `submit` would do now. Creates nothing; raises what `submit` would raise.

    Where there is a cluster, the API server is asked too; without one, the values have been checked, and no more.
    """
    if plan.kind is not RunKind.LOCAL and not target.includes_cluster:
        from launcher.backends.base import Preview

        return Preview(plan.config, "The values hold up. There is no kubeconfig, so no cluster was asked.")
    return backend_for(plan, target).preview(plan, accept_changes=accept_changes)


def submit(plan: LaunchPlan, *, accept_changes: bool = False, target: Target = DEFAULT_TARGET) -> Submission:
    """Start the run, or find or resume the one that has its name; returns at once.

    `accept_changes` goes on from the last checkpoint with a config that differs from the run's. Raises CheckFailed
    where an earlier forecast found that it does not fit.
    """
    refuse_misfits(plan)
    return backend_for(plan, target).submit(plan, accept_changes=accept_changes)


def status(name: str, *, target: Target = DEFAULT_TARGET) -> RunStatus:
    """The run's status now; of a cluster's run with the steps and losses that its log tells."""
    return find(name, target)[1]


def logs(
    name: str, *, follow: bool = False, worker: int | None = None, target: Target = DEFAULT_TARGET
) -> Iterator[str]:
    """The run's output line by line, without newlines; with `follow`, until the run ends.

    `worker` is that host's output alone, counted from 0. Raises LauncherError where there is none, or its log has gone
    with its pods.
    """
    return find(name, target)[0].logs(name, follow=follow, worker=worker)


def wait(name: str, *, timeout: float | None = None, target: Target = DEFAULT_TARGET) -> RunStatus:
    """The run's status once it has ended; raises WaitTimeout after `timeout` seconds.

    An API server that does not answer meanwhile is asked again until it does.
    """
    backend, now = find(name, target)
    deadline = None if timeout is None else time.monotonic() + timeout
    while not now.state.ended:
        pause = backend.poll_seconds
        if deadline is not None:
            pause = min(pause, deadline - time.monotonic())
            if pause <= 0:
                raise WaitTimeout(f'The run "{name}" is still {now.state} after {timeout:g} s; it goes on.')
        time.sleep(pause)
        with contextlib.suppress(Unreachable):
            now = found_or_deleted(backend.status(name), name)
    return now


def cancel(name: str, *, target: Target = DEFAULT_TARGET) -> RunStatus:
    """Stop the run and free all that it holds; its record and checkpoints stay. Idempotent.

    Returns once nothing is held; raises LauncherError where that lasts minutes, and calling it again goes on waiting.
    """
    return find(name, target)[0].cancel(name)


def delete(name: str, *, target: Target = DEFAULT_TARGET) -> None:
    """Remove a run that has ended: on this machine with its folder and checkpoints, in a cluster its record.

    Raises LauncherError where it goes on, and for a run that is a Helm release.
    """
    find(name, target)[0].delete(name)
