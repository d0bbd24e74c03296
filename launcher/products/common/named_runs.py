"""The runs that a name of a run or a sweep selects."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from launcher.backends import sweeps
from launcher.backends.base import Backend, RunStatus, State
from launcher.backends.lookup import IsSweep, NoSuchRun, find, resolve
from launcher.backends.sweeps import Sweep
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.common.storage import is_path, is_url


def run_names(name: str, *, target: Target = DEFAULT_TARGET) -> tuple[str, ...]:
    """Return the names of the runs of a sweep; any other name, also that of no run, is returned unchanged."""
    if is_url(name) or is_path(name):
        return (name,)
    try:
        resolved = resolve(name, target)[1]
    except NoSuchRun:
        return (name,)
    return (name,) if isinstance(resolved, RunStatus) else tuple(run.name for run in resolved.runs)


def find_best(
    name: str, target: Target = DEFAULT_TARGET, say: Callable[[str], None] = lambda _: None
) -> tuple[Backend, RunStatus]:
    """Like `find`, but return the best run of a sweep, and call `say` with a sentence that names it."""
    try:
        return find(name, target)
    except IsSweep as error:
        sweep = with_progress(error.sweep, error.backend)
        if sweep.best is None:
            raise LauncherError(
                f'No run of the sweep "{sweep.name}" has a loss, so none is the best.',
                f"Name one of its runs: {sweeps.range_of(sweep)}.",
            ) from None
        say(f'The best run of the sweep "{sweep.name}" {"is" if sweep.ended else "so far is"} {sweep.best.name}.')
        return error.backend, sweep.best


def with_progress(sweep: Sweep, backend: Backend) -> Sweep:
    """Return the sweep with the steps and losses of the runs that have started, with one request for each run."""

    def one(run: RunStatus) -> RunStatus:
        begun = run.state not in (State.QUEUED, State.ADMITTED)
        return (backend.status(run.name) or run) if begun and run.step is None else run

    with ThreadPoolExecutor(backend.max_parallel) as pool:
        return Sweep(sweep.name, tuple(pool.map(one, sweep.runs)))
