"""Sweeps: runs that are submitted and shown together, one for each combination of values.

A sweep has no record of its own: each of its runs stores the sweep's name. Submitting a partly submitted sweep again
completes it.
"""

from __future__ import annotations

import contextlib
import html
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from launcher.backends.base import Backend, RunStatus, State
from launcher.errors import LauncherError
from launcher.k8s.errors import Unreachable

# The number of runs of a large sweep that a sentence names.
_NAMED = 5
_SLOWEST_POLL = 5.0
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, repr=False)
class Sweep:
    """A snapshot of a sweep: its runs, in order."""

    name: str
    runs: tuple[RunStatus, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The swept keys."""
        return tuple(dict.fromkeys(key for run in self.runs for key in run.sweep_values))

    @property
    def ended(self) -> bool:
        return all(run.state.ended for run in self.runs)

    @property
    def succeeded(self) -> bool:
        return all(run.state is State.SUCCEEDED for run in self.runs)

    @property
    def counts(self) -> Mapping[State, int]:
        """The number of runs in each state, in the order of `State`."""
        found = Counter(run.state for run in self.runs)
        return {state: found[state] for state in State if found[state]}

    @property
    def ranked(self) -> tuple[RunStatus, ...]:
        """The runs sorted by `measure`, the lowest loss first; then the runs without a loss, in order."""
        measure = self.measure
        return tuple(sorted(self.runs, key=lambda run: _or_infinite(getattr(run, measure))))

    @property
    def best(self) -> RunStatus | None:
        """The run with the lowest loss, or None if no loss is known."""
        first = self.ranked[0]
        return first if math.isfinite(_or_infinite(getattr(first, self.measure))) else None

    @property
    def measure(self) -> str:
        """The field of a run that compares runs: "eval_loss", or "loss" of the last step if no run was evaluated."""
        evaluated = any(run.eval_loss is not None for run in self.runs)
        return "eval_loss" if evaluated else "loss"

    def __repr__(self) -> str:
        best = f", best={self.best.name!r}" if self.best is not None else ""
        return f"Sweep(name={self.name!r}, {', '.join(f'{state}={n}' for state, n in self.counts.items())}{best})"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows: the runs, the best one first."""
        titles = ["run", *self.keys, "state", "step", "loss", "held-out loss"]
        rows = [
            [run.name, *map(run.sweep_values.get, self.keys), run.state.value, run.step, run.loss, run.eval_loss]
            for run in self.ranked
        ]
        cells = [[html.escape("" if cell is None else str(cell)) for cell in row] for row in rows]
        body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
        return f"<table><tr><th>{'</th><th>'.join(map(html.escape, titles))}</th></tr>{body}</table>"

    def as_json(self) -> list[dict[str, Any]]:
        return [run.as_json() for run in self.runs]


def of(name: str, statuses: Sequence[RunStatus]) -> Sweep | None:
    """Return the sweep called `name`, or None if none of the runs belongs to it."""
    runs = [status for status in statuses if status.sweep == name]
    return Sweep(name, tuple(sorted(runs, key=lambda run: _number(run.name)))) if runs else None


# --- reading, ending --------------------------------------------------------------------------------------------


def find(name: str, backend: Backend) -> Sweep | None:
    """Return the current sweep, without the values that are only in the logs of a cluster's runs, or None."""
    if not _NAME.fullmatch(name):  # not a valid label value either
        return None
    return of(name, backend.list(lambda _: None, sweep=name))


def with_progress(sweep: Sweep, backend: Backend) -> Sweep:
    """Return the sweep with the steps and losses of the runs that have started, with one request for each run."""

    def one(run: RunStatus) -> RunStatus:
        begun = run.state not in (State.QUEUED, State.ADMITTED)
        return (backend.status(run.name) or run) if begun and run.step is None else run

    with ThreadPoolExecutor(backend.max_parallel) as pool:
        return Sweep(sweep.name, tuple(pool.map(one, sweep.runs)))


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


def cancel(sweep: Sweep, backend: Backend, each: Callable[[RunStatus], None] = lambda _: None) -> Sweep:
    """Cancel the runs of the sweep that have not ended, as `cancel_runs` does."""
    return Sweep(sweep.name, tuple(cancel_runs(sweep.runs, backend, each)))


def cancel_runs(
    runs: Sequence[RunStatus], backend: Backend, each: Callable[[RunStatus], None] = lambda _: None
) -> list[RunStatus]:
    """Cancel the runs that have not ended, and return all runs with their new statuses.

    Waiting runs come first, so that none of them starts in the meantime.
    """
    going = [run for run in reversed(runs) if run.can_be_cancelled]
    waiting = [run for run in going if run.state in (State.QUEUED, State.PREEMPTED)]
    ended: dict[str, RunStatus] = {}

    def one(run: RunStatus) -> None:
        ended[run.name] = backend.cancel(run.name)
        each(ended[run.name])

    for batch in (waiting, [run for run in going if run not in waiting]):
        in_parallel(backend, batch, one, same_refusals)
    return [ended.get(run.name, run) for run in runs]


def delete(sweep: Sweep, backend: Backend) -> None:
    """Remove all runs of a sweep that has ended. Raises LauncherError, and removes nothing, if a run is active."""
    check_ended(sweep, backend)
    delete_runs(sweep.runs, backend)


def delete_runs(runs: Sequence[RunStatus], backend: Backend) -> None:
    """Remove runs that have ended. Raises one LauncherError about all runs that could not be removed."""
    in_parallel(backend, runs, lambda run: backend.delete(run.name), same_refusals)


def check_ended(sweep: Sweep, backend: Backend) -> None:
    """Raise LauncherError if a run of the sweep is active."""
    going = [run.name for run in sweep.runs if not run.state.ended]
    if going:
        raise LauncherError(
            f'The sweep "{sweep.name}" has not ended: {_named(going)}.',
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
        now = find(self.sweep.name, self._backend)
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
            found = [status for status in pool.map(one, runs) if status is not None]
        for status in found:
            self._read[status.name] = math.inf if status.state.ended else time.monotonic()
        return {status.name: status for status in found}


# --- many at once -----------------------------------------------------------------------------------------------


def in_parallel[T, R](
    backend: Backend,
    items: Sequence[T],
    do: Callable[[T], R],
    failed: Callable[[Sequence[tuple[str, LauncherError]]], LauncherError],
) -> list[R]:
    """Return the result of `do` for each item (a plan or a status), several in parallel, in approximately this order.

    Raises `failed` of all errors, sorted by the runs' names, after all items are processed.
    """
    failures: dict[str, LauncherError] = {}

    def one(item: Any) -> list[R]:
        try:
            return [do(item)]
        except LauncherError as error:
            failures[item.name] = error
            return []

    with ThreadPoolExecutor(backend.max_parallel) as pool:
        results = [result for done in pool.map(one, items) for result in done]
    if failures:
        raise failed([(name, failures[name]) for name in sorted(failures, key=_number)])
    return results


def same_refusals(failures: Sequence[tuple[str, LauncherError]]) -> LauncherError:
    """Return one error for several runs. Messages that differ only in the run's name appear once."""
    about = [(name, error.message if name in error.message else f"{name}: {error.message}") for name, error in failures]
    lines = merged(about)
    hints = dict.fromkeys(error.hint for _, error in failures if error.hint)
    first = failures[0][1]
    combined = LauncherError("\n".join(lines), next(iter(hints), ""))
    return first if len(failures) == 1 and failures[0][0] in first.message else combined


def merged(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines of runs, each with its run's name. Lines that differ only in the run's name appear once."""
    by_text: dict[str, list[tuple[str, str]]] = {}
    for name, line in lines:
        by_text.setdefault(line.replace(name, "*"), []).append((name, line))
    found = []
    for text, ((_, line), *others) in by_text.items():
        also = f" (also {_named([name for name, _ in others])})" if others and "*" in text else ""
        found.append(line + also)
    return found


def _named(names: Sequence[str]) -> str:
    """Return the names as text: "lr-1, lr-2 and 7 others"."""
    if len(names) <= _NAMED + 1:
        return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} others"


def range_of(sweep: Sweep) -> str:
    """Return the range of the runs' names: "lr-1 to lr-6"."""
    names = [run.name for run in sweep.runs]
    return f"{names[0]} to {names[-1]}" if len(names) > 1 else names[0]


def _number(name: str) -> tuple[str, int]:
    """Return a sort key that orders lr-2 before lr-10."""
    match = re.fullmatch(r"(.*?)-?(\d*)", name)
    return (match[1], int(match[2] or 0)) if match else (name, 0)


def _or_infinite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.inf
