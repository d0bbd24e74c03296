"""Read and explain served models."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from launcher.backends.log_excerpt import Excerpt
from launcher.backends.lookup import NoSuchRun, is_name
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.serving.models import ServedModelStatus
    from launcher.diagnose.explain import Explanation
    from launcher.releases.install import ReleasePlan


class IsServedModel(LauncherError):
    """The name is that of a served model, and not of a run. `name` is the name.

    `ends` is whether the command would end the run.
    """

    def __init__(self, name: str, target: Target, *, ends: bool = False) -> None:
        at = f"{name}{target.cluster().cli_args}"
        if ends:
            message = f'"{name}" is a served model, which ends with its Helm release.'
            super().__init__(message, f"To release its resources: launcher uninstall {at}")
        else:
            message = f'"{name}" is a served model; this command needs a run.'
            super().__init__(message, f"To show its state: launcher status {at}")
        self.name = name


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
    from launcher.backends.serving import models as serving

    cluster = target.cluster()
    if name is None:
        listed = serving.all_models(cluster, all_namespaces=target.all_namespaces)
        found = [serving.describe(cluster, each) for each in listed]
    else:
        model = serving.named(cluster, name)
        found = [] if model is None else [serving.describe(cluster, model, details=True)]
    for sentence in sorted(cluster.unreadable):
        warn(f"{sentence} It is left out.")
    return found


def plan_serving(
    name: str,
    files: Sequence[str],
    sets: Sequence[str] = (),
    *,
    step: str | int | None = None,
    model: str | None = None,
    release: str | None = None,
    target: Target = DEFAULT_TARGET,
    recover: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> ReleasePlan:
    """Return what `install` of a served model would change in a cluster: charts/serve with these values. Changes
    nothing.

    `name` is a run of the cluster whose checkpoint `step` (a number, "best", or "last", the default) was exported,
    hf:ORG/NAME, or a folder of the storage in the values. `model` is its name in requests, and `release` the name of
    the release (default: that of the run or of the folder). Calls `warn` with a sentence if it is not known whether the
    export exists. Raises LauncherError if it is known not to.
    """
    from launcher.inference import on_cluster
    from launcher.releases import install as releases

    found = on_cluster.select(name, None if step is None else str(step), files, sets, target)
    for sentence in found.warnings:
        warn(sentence)
    chosen = [*sets, *found.sets, *([f"serve.name={model}"] if model else [])]
    return releases.plan("serve", release or found.release, files, chosen, target, recover=recover)


@contextlib.contextmanager
def only_runs(target: Target = DEFAULT_TARGET, *, ends: bool = False) -> Iterator[None]:
    """Raise IsServedModel instead of NoSuchRun if a served model has the name. `ends`: as in IsServedModel."""
    try:
        yield
    except NoSuchRun as error:
        if _has_model(error.name, target):
            raise IsServedModel(error.name, target, ends=ends) from error
        raise


def run_or_model[Run](
    name: str, find: Callable[[], Run], *, target: Target = DEFAULT_TARGET, ends: bool = False
) -> Run:
    """Return the run that `find` returns. Raises IsServedModel if it finds none, and a served model has the name.

    Raises LauncherError if both exist; "run/NAME" is always the run. The two are searched in parallel.
    """
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_has_model, name, target)
        try:
            found = find()
        except LauncherError as error:
            if asked.result():
                raise IsServedModel(name, target, ends=ends) from error
            raise
        if asked.result():
            raise LauncherError(
                f'Both a run "{name}" and a served model "{name}" exist.',
                f"Use run/{name} for the run. To show both: launcher list",
            )
        return found


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
        raise _deleted(name)
    excerpt = Excerpt(tail, None if since is None else time.time() - since)
    if worker is None and not follow and (model.failure or not model.answers):
        return logs.not_ready(cluster, model, excerpt=excerpt)
    return logs.lines(cluster, model, follow=follow, worker=worker, excerpt=excerpt)


def explain_model(name: str, *, target: Target = DEFAULT_TARGET) -> Explanation:
    """Return why the served model is in its state: a sentence, the evidence, and suggestions. Changes nothing."""
    from launcher.backends.serving import models as serving
    from launcher.diagnose.explain.served_model import explain

    cluster = target.cluster()
    model = serving.named(cluster, name)
    if model is None:
        raise _deleted(name)
    return explain(cluster, model)


def _has_model(name: str, target: Target) -> bool:
    """Return whether a served model has the name; False if the cluster does not answer or denies it."""
    if not target.cluster_requested:
        return False
    from launcher.backends.serving import models as serving

    if not is_name(name):
        return False
    try:
        return serving.exists(target.cluster(), name)
    except LauncherError:
        return False


def _deleted(name: str) -> LauncherError:
    return LauncherError(f'The served model "{name}" was deleted in the meantime.')
