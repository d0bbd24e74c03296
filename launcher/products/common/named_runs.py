"""The runs that a name of a run or a sweep selects."""

from __future__ import annotations

from launcher.backends.base import RunStatus
from launcher.backends.lookup import NoSuchRun, resolve
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.common.storage import is_path, is_url


def run_names(name: str, *, target: Target = DEFAULT_TARGET) -> tuple[str, ...]:
    """Return the names of the runs of a sweep; any other name, also that of no run, is returned unchanged."""
    if is_url(name) or is_path(name):
        return (name,)
    try:
        found = resolve(name, target)[1]
    except NoSuchRun:
        return (name,)
    return (name,) if isinstance(found, RunStatus) else tuple(run.name for run in found.runs)
