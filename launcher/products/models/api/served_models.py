"""Read the served models of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from launcher.backends.log_excerpt import Excerpt
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.models.serving import logs
from launcher.products.models.serving import models as served_models
from launcher.products.models.serving.models import ServedModel, ServedModelStatus

if TYPE_CHECKING:
    from launcher.diagnose.explain.finding import Explanation


def models(
    name: str | None = None, *, target: Target = DEFAULT_TARGET, warn: Callable[[str], None] = lambda _: None
) -> list[ServedModelStatus]:
    """Return the served models of the namespace, the newest first; [] if no cluster is configured.

    With target.all_namespaces, return those of all namespaces. With `name`, return only the served model with that name
    in the namespace, with its pods. Raises LauncherError if the API server does not answer. Calls `warn` with a
    sentence for each object that cannot be read.
    """
    if not target.cluster_requested:
        return []
    cluster = target.cluster()
    if name is None:
        listed = served_models.all_models(cluster, all_namespaces=target.all_namespaces)
        statuses = [served_models.describe(cluster, model) for model in listed]
    else:
        named = served_models.named(cluster, name)
        statuses = [] if named is None else [served_models.describe(cluster, named, details=True)]
    for sentence in sorted(cluster.unreadable):
        warn(f"{sentence} It is left out.")
    return statuses


def table(target: Target, warn: Callable[[str], None]) -> tuple[Sequence[ServedModelStatus], str]:
    """Return the served models of `models` with the table of `launcher list`."""
    statuses = models(target=target, warn=warn)
    return statuses, served_models.listing(statuses)


def explain_model(name: str, *, target: Target = DEFAULT_TARGET) -> Explanation:
    """Return why the served model is in its state: a sentence, the evidence, and suggestions. Changes nothing."""
    from launcher.products.models.serving import explain

    return explain.explain(target.cluster(), _named(name, target))


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
    cluster, model = target.cluster(), _named(name, target)
    excerpt = Excerpt(tail, None if since is None else time.time() - since)
    if worker is None and not follow and (model.failure or not model.answers):
        return logs.not_ready(cluster, model, excerpt=excerpt)
    return logs.lines(cluster, model, follow=follow, worker=worker, excerpt=excerpt)


def _named(name: str, target: Target) -> ServedModel:
    """Return a served model that was found before."""
    model = served_models.named(target.cluster(), name)
    if model is None:
        raise LauncherError(f'The served model "{name}" was deleted in the meantime.')
    return model
