"""Select runs by names, patterns, states and age, and end or delete all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from launcher.backends import lookup
from launcher.backends.base import Backend, RunStatus, State
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target

type Selected = list[tuple[Backend, RunStatus]]


@dataclass(frozen=True)
class RunFilter:
    """The states (empty: all) and the age of runs. The age counts from a run's end or, while it is active, its submit.

    `older_than` is in seconds.
    """

    states: frozenset[State] = frozenset()
    older_than: float | None = None

    def __bool__(self) -> bool:
        return bool(self.states) or self.older_than is not None

    def accepts(self, status: RunStatus) -> bool:
        if self.states and status.state not in self.states:
            return False
        if self.older_than is None:
            return True

        since = status.ended or status.submitted
        return since is not None and time.time() - datetime.fromisoformat(since).timestamp() >= self.older_than


EVERY_RUN = RunFilter()


def is_pattern(name: str) -> bool:
    return any(character in name for character in "*?[")


def matches(status: RunStatus, names: Sequence[str]) -> bool:
    """Return whether one of the names is that of the run or its sweep, or a pattern of the run. No names match all."""
    return not names or any(
        fnmatchcase(status.name, name) if is_pattern(name) else name in (status.name, status.sweep) for name in names
    )


def select(
    names: Sequence[str],
    target: Target = DEFAULT_TARGET,
    *,
    only: RunFilter = EVERY_RUN,
    warn: Callable[[str], None] = lambda _: None,
) -> Selected:
    """Return the runs that `names` select, and that `only` accepts, with their backends. No names select all runs.

    A name is that of a run, of a sweep (all its runs), or a pattern such as "demo-*". Raises LauncherError if a name or
    a pattern selects no run, before `only` is applied.
    """
    selected: Selected = []
    listed: Selected | None = None
    for name in names or ("*",):
        if not is_pattern(name):
            backend, run = lookup.resolve(name, target)
            selected += [(backend, each) for each in ([run] if isinstance(run, RunStatus) else run.runs)]
            continue
        if listed is None:
            listed = lookup.list_with_backends(warn, target=target)
        matching = [(backend, run) for backend, run in listed if fnmatchcase(run.name, name)]
        if names and not matching:
            raise LauncherError(f'No run matches "{name}".', "To list all runs: launcher list")
        selected += matching
    # Each search makes its own backends: those of one place and kind have the same runs.
    unique = {(backend.description, run.kind, run.name): (backend, run) for backend, run in selected}
    return [(backend, run) for backend, run in unique.values() if only.accepts(run)]


def cancel(selected: Selected) -> list[RunStatus]:
    """Cancel the runs, waiting ones first, and return their statuses."""
    from launcher.backends import sweeps

    return [run for backend, runs in _by_backend(selected) for run in sweeps.cancel_runs(runs, backend)]


def delete(selected: Selected) -> None:
    """Delete the runs, which must have ended."""
    from launcher.backends import sweeps

    for backend, runs in _by_backend(selected):
        sweeps.delete_runs(runs, backend)


def _by_backend(selected: Selected) -> list[tuple[Backend, list[RunStatus]]]:
    groups: dict[tuple[str, str], tuple[Backend, list[RunStatus]]] = {}
    for backend, run in selected:
        groups.setdefault((backend.description, type(backend).__name__), (backend, []))[1].append(run)
    return list(groups.values())
