"""Watch the runs of a sweep, and end all of them."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from launcher.backends import sweeps
from launcher.backends.base import Backend, RunStatus, State
from launcher.backends.sweeps import Sweep
from launcher.errors import LauncherError
from launcher.k8s.errors import Unreachable

_SLOWEST_POLL = 5.0


def pause(sweep: Sweep, backend: Backend) -> float:
    """Return the seconds between two reads of the sweep: more than for one run, since a sweep needs more requests."""
    return min(_SLOWEST_POLL, max(backend.poll_seconds, 0.5) * max(1.0, len(sweep.runs) / 20))


def watch(sweep: Sweep, backend: Backend, deadline: float | None = None) -> Iterator[Sweep | Unreachable]:
    """Yield the sweep repeatedly until all its runs have ended or the monotonic clock reaches `deadline`.

    Yields Unreachable if the API server does not answer. A run's steps and losses are kept after its log is deleted.
    """
    watched = _Watcher(sweep, backend)
    while True:
        yield watched.sweep
        left = math.inf if deadline is None else deadline - time.monotonic()
        if watched.sweep.ended or left <= 0:
            return
        time.sleep(min(left, pause(sweep, backend)))
        try:
            watched.refresh()
        except Unreachable as error:
            yield error


def cancel(sweep: Sweep, backend: Backend) -> Sweep:
    """Cancel the runs of the sweep that have not ended, as launcher.backends.sweeps.cancel_runs does."""
    return Sweep(sweep.name, tuple(sweeps.cancel_runs(sweep.runs, backend)))


def delete(sweep: Sweep, backend: Backend) -> None:
    """Remove all runs of a sweep that has ended. Raises LauncherError, and removes nothing, if a run is active."""
    check_ended(sweep, backend)
    sweeps.delete_runs(sweep.runs, backend)


def check_ended(sweep: Sweep, backend: Backend) -> None:
    """Raise LauncherError if a run of the sweep is active."""
    going = [run.name for run in sweep.runs if not run.state.ended]
    if going:
        raise LauncherError(
            f'The sweep "{sweep.name}" has not ended: {sweeps.join_names(going)}.',
            f"Cancel it first: launcher cancel {sweep.name}{backend.cli_args}",
        )


class _Watcher:
    """Reads a sweep repeatedly. Logs are read a few at a time, and once after a run's end."""

    _LOGS, _LOG_SECONDS = 4, 10.0

    def __init__(self, sweep: Sweep, backend: Backend) -> None:
        self.sweep = sweep
        self._backend = backend
        self._read: dict[str, float] = {}  # when each run's log was last read; infinite once it was read to its end

    def refresh(self) -> None:
        now = sweeps.find(self.sweep.name, self._backend)
        if now is None:
            raise LauncherError(f'The runs of the sweep "{self.sweep.name}" were deleted in the meantime.')
        before = {run.name: run for run in self.sweep.runs}
        runs = [before[run.name].carry_over(run) if run.name in before else run for run in now.runs]
        # If the list includes a run's steps (on this machine), its log is not needed.
        due = [run for run in now.runs if run.step is None and self._due(run)]
        due.sort(key=lambda run: (not run.state.ended, self._read.get(run.name, 0.0)))
        read = self._logs(due if now.ended else due[: self._LOGS])
        self.sweep = Sweep(now.name, tuple(run.carry_over(read[run.name]) if run.name in read else run for run in runs))

    def _due(self, run: RunStatus) -> bool:
        if not run.state.ended and run.state not in (State.STARTING, State.RUNNING, State.RESTARTING):
            return False
        last = self._read.get(run.name, 0.0)
        return last < math.inf and (run.state.ended or time.monotonic() >= last + self._LOG_SECONDS)

    def _logs(self, runs: Sequence[RunStatus]) -> dict[str, RunStatus]:
        """Return the statuses of these runs with the progress from their logs."""

        def one(run: RunStatus) -> RunStatus | None:
            with contextlib.suppress(Unreachable):
                return self._backend.status(run.name)
            return None

        with ThreadPoolExecutor(self._backend.max_parallel) as pool:
            statuses = [status for status in pool.map(one, runs) if status is not None]
        for status in statuses:
            self._read[status.name] = math.inf if status.state.ended else time.monotonic()
        return {status.name: status for status in statuses}
