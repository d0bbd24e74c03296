"""Read the logs of runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from launcher.backends.log_excerpt import Excerpt
from launcher.backends.lookup import find
from launcher.k8s.target import DEFAULT_TARGET, Target


def logs(
    name: str,
    *,
    follow: bool = False,
    worker: int | None = None,
    tail: int | None = None,
    since: float | None = None,
    target: Target = DEFAULT_TARGET,
) -> Iterator[str]:
    """Yield the run's output by line, without newlines; with `follow`, until the run ends.

    `worker` selects the output of one host, counted from 0. `tail` is the number of existing lines to yield, counted
    from the end, and `since` selects the lines of the last seconds. Raises IsSweep, which has the runs, if the name is
    that of a sweep, and LauncherError if there is no such host, or if the log was deleted with its pods.
    """
    excerpt = Excerpt(tail, None if since is None else time.time() - since)
    backend, run = find(name, target)
    return backend.logs(run.name, follow=follow, worker=worker, excerpt=excerpt)
