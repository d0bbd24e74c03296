"""List runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from launcher import plugins
from launcher.backends.lookup import list_with_backends, reachable_backends
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.base import RunStatus


def list_runs(
    warn: Callable[[str], None] = lambda _: None,
    *,
    target: Target = DEFAULT_TARGET,
    sweep: str = "",
    everything: bool = False,
) -> list[RunStatus]:
    """Return every run, newest first. Call `warn` once for each run, or cluster, that cannot be read.

    With `sweep`, return only the runs of that sweep. With `everything`, find the chips that no quota counts
    (`uncounted_chips`), and return the objects in the queues that Slipway did not create (`foreign`), too. Raises
    LauncherError if only a cluster is queried and it does not answer.
    """
    reachable = None
    for hook in plugins.hooks("queue_backend") if everything and target.cluster_requested else ():
        reachable = reachable_backends(target, hook)
    return [run for _, run in list_with_backends(warn, target=target, sweep=sweep, reachable=reachable)]
