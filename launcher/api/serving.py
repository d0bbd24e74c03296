"""Find whether a name is that of a run or of a served model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from launcher import hooks
from launcher.backends.lookup import NoSuchRun, is_name
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target


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
            run = find()
        except LauncherError as error:
            if asked.result():
                raise IsServedModel(name, target, ends=ends) from error
            raise
        if asked.result():
            raise LauncherError(
                f'Both a run "{name}" and a served model "{name}" exist.',
                f"Use run/{name} for the run. To show both: launcher list",
            )
        return run


def _has_model(name: str, target: Target) -> bool:
    """Return whether a served model has the name; False if the cluster does not answer or denies it."""
    try:
        return target.cluster_requested and is_name(name) and hooks.has_model(target.cluster(), name)
    except LauncherError:
        return False
