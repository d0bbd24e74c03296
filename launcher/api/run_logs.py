"""Read the logs of runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from launcher.backends.log_excerpt import Excerpt
from launcher.backends.lookup import find
from launcher.errors import LauncherError
from launcher.hooks import stored_log
from launcher.k8s.target import DEFAULT_TARGET, Target


def logs(
    name: str,
    *,
    follow: bool = False,
    worker: int | None = None,
    tail: int | None = None,
    since: float | None = None,
    attempt: int | None = None,
    target: Target = DEFAULT_TARGET,
) -> Iterator[str]:
    """Yield the run's output by line, without newlines; with `follow`, until the run ends.

    `worker` selects the output of one host, counted from 0. `tail` is the number of existing lines to yield, counted
    from the end, and `since` selects the lines of the last seconds. The output of an earlier `attempt`, and of a run
    whose pods are gone, is read from the folder of the run; `name` may be such a folder. Raises IsSweep, which has the
    runs, if the name is that of a sweep, and LauncherError if there is no such host, or if the output is gone.
    """
    excerpt = Excerpt(tail, None if since is None else time.time() - since)
    run = None if is_folder(name) else find(name, target)
    stored = stored_log(name, run, attempt=attempt, worker=worker, excerpt=excerpt)
    if stored is not None:
        return iter(stored)
    if run is None or attempt not in (None, run[1].attempt):
        raise LauncherError("No installed package of the launcher reads the output of a run from its folder.")
    return run[0].logs(run[1].name, follow=follow, worker=worker, excerpt=excerpt)


def is_folder(name: str) -> bool:
    """Return whether an argument is a folder or a URL, and not the name of a run."""
    return "://" in name or name.startswith((".", "/", "~"))
