"""Run commands in the pods of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from launcher.backends.lookup import find
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.k8s.exec import Session


def shell(name: str, *, worker: int = 0, command: Sequence[str] = (), target: Target = DEFAULT_TARGET) -> Session:
    """Start a command in the pod of a host of the run, and return the session; without `command`, a shell.

    A shell has a terminal and reads what `send` sends; a command has neither. Raises LauncherError for a run of this
    machine, if the host has no running pod, or if RBAC denies it.
    """
    from launcher.backends.shell import start

    return start(*find(name, target), worker, command, terminal=not command)
