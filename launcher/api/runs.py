"""Read and end runs."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from launcher.backends.lookup import find, look_again
from launcher.backends.switches import Followed
from launcher.errors import ExitCode, LauncherError
from launcher.k8s.errors import Unreachable
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.base import RunStatus


class WaitTimeout(LauncherError):
    """`wait` timed out; the run continues."""

    exit_code = ExitCode.TIMEOUT


def status(name: str, *, target: Target = DEFAULT_TARGET) -> RunStatus:
    """Return the run's current status. For a run on a cluster, steps and losses come from its log."""
    return find(name, target)[1]


def wait(name: str, *, timeout: float | None = None, target: Target = DEFAULT_TARGET) -> RunStatus:
    """Wait until the run ends, and return its status. Raises WaitTimeout after `timeout` seconds.

    If the API server does not answer, the request is repeated. If launcher submit switches the run to another
    alternative of slice.any, wait for the end of the last attempt.
    """
    backend, now = find(name, target)
    followed = Followed()
    deadline = None if timeout is None else time.monotonic() + timeout
    while not followed.ended(now):
        pause = backend.poll_seconds
        if deadline is not None:
            pause = min(pause, deadline - time.monotonic())
            if pause <= 0:
                raise WaitTimeout(f'Timed out after {timeout:g} s: the run "{name}" is {now.state}. It continues.')
        time.sleep(pause)
        with contextlib.suppress(Unreachable):
            now = followed.next(backend.status(now.name), now)
    return now


def cancel(name: str, *, target: Target = DEFAULT_TARGET) -> RunStatus:
    """Stop the run and release its resources, but keep its record and checkpoints. Idempotent.

    Returns when all resources are released. Raises LauncherError if that takes minutes; call it again to keep waiting.
    """
    backend, now = look_again(lambda: find(name, target), target)
    return backend.cancel(now.name)


def delete(name: str, *, target: Target = DEFAULT_TARGET) -> None:
    """Delete a run that has ended: on this machine with its folder and checkpoints, in a cluster only its record.

    Raises LauncherError if the run is active, or if it is a Helm release.
    """
    backend, run = find(name, target)
    backend.delete(run.name)
