"""Sweeps: runs that are submitted and shown together, one for each combination of values.

A sweep has no record of its own: each of its runs stores the sweep's name. Submitting a partly submitted sweep again
completes it.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from launcher.backends.base import Backend, RunStatus, State
from launcher.errors import LauncherError

# The number of runs of a large sweep that a sentence names.
_NAMED = 5
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
        return {state: count for state in State if (count := sum(run.state is state for run in self.runs))}

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
        return "eval_loss" if any(run.eval_loss is not None for run in self.runs) else "loss"

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


def cancel_runs(runs: Sequence[RunStatus], backend: Backend) -> list[RunStatus]:
    """Cancel the runs that have not ended, and return all runs with their new statuses.

    Waiting runs come first, so that none of them starts in the meantime.
    """
    going = [run for run in reversed(runs) if run.can_be_cancelled]
    waiting = [run for run in going if run.state in (State.QUEUED, State.PREEMPTED)]
    ended: dict[str, RunStatus] = {}

    def one(run: RunStatus) -> None:
        ended[run.name] = backend.cancel(run.name)

    for batch in (waiting, [run for run in going if run not in waiting]):
        in_parallel(backend, batch, one, same_refusals)
    return [ended.get(run.name, run) for run in runs]


def delete_runs(runs: Sequence[RunStatus], backend: Backend) -> None:
    """Remove runs that have ended. Raises one LauncherError about all runs that could not be removed."""
    in_parallel(backend, runs, lambda run: backend.delete(run.name), same_refusals)


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
        also = f" (also {join_names([name for name, _ in others])})" if others and "*" in text else ""
        found.append(line + also)
    return found


def join_names(names: Sequence[str]) -> str:
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
