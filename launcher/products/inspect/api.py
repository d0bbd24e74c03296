"""Look into runs: profiles and shells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.backends.lookup import find
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from launcher.products.common.pod_exec import Session
    from launcher.products.inspect.profile import Profile


def profile(
    name: str, *, steps: int = 5, target: Target = DEFAULT_TARGET, say: Callable[[str], None] = lambda _: None
) -> Profile:
    """Record the next steps of a run with JAX's profiler, and return the profile.

    Waits until the steps are done. `say` is called with sentences about what it waits for. Raises
    LauncherError if the run cannot be profiled, or ends before, or if it is on a cluster where you may not run commands
    in pods.
    """
    from launcher.products.inspect.profile import capture

    return capture(*find(name, target), steps, say)


def shell(name: str, *, worker: int = 0, command: Sequence[str] = (), target: Target = DEFAULT_TARGET) -> Session:
    """Start a command in the pod of a host of the run, and return the session; without `command`, a shell.

    A shell has a terminal and reads what `send` sends; a command has neither. Raises LauncherError for a run of this
    machine, if the host has no running pod, or if RBAC denies it.
    """
    from launcher.products.inspect.shell import start

    return start(*find(name, target), worker, command, terminal=not command)
