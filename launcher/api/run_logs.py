"""Read the logs of runs and of served models."""

from __future__ import annotations

import time
from collections.abc import Iterator

from launcher.api.serving import deleted
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


def model_logs(
    name: str,
    *,
    follow: bool = False,
    worker: int | None = None,
    tail: int | None = None,
    since: float | None = None,
    target: Target = DEFAULT_TARGET,
) -> Iterator[str]:
    """Yield the log of a served model's head by line, or that of the host with the number `worker`.

    Without both `worker` and `follow`, a model that does not answer, or whose new version does not, yields the logs of
    its head and of all hosts, and the messages of Ray Serve's controller. With `follow`, continue until the served
    model is deleted. `tail` and `since` are those of `logs`.
    """
    from launcher.backends.serving import logs
    from launcher.backends.serving import models as serving

    cluster = target.cluster()
    model = serving.named(cluster, name)
    if model is None:
        raise deleted(name)
    excerpt = Excerpt(tail, None if since is None else time.time() - since)
    if worker is None and not follow and (model.failure or not model.answers):
        return logs.not_ready(cluster, model, excerpt=excerpt)
    return logs.lines(cluster, model, follow=follow, worker=worker, excerpt=excerpt)
