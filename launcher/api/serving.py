"""Read served models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from launcher.backends.lookup import NoSuchRun, is_name
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.serving.models import ServedModelStatus


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


def deleted(name: str) -> LauncherError:
    """Return the error about a served model that was deleted after it was found."""
    return LauncherError(f'The served model "{name}" was deleted in the meantime.')
