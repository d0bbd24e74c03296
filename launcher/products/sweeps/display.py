"""Follow a sweep until all its runs have ended: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launcher import formatting
from launcher.backends.base import RunStatus, State
from launcher.backends.sweeps import Sweep
from launcher.cli import output
from launcher.cli.follow import StuckTimer, run_argument, showing
from launcher.errors import Detached, ExitCode
from launcher.k8s.errors import Unreachable
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.common.named_runs import with_progress
from launcher.products.sweeps import watching

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from launcher.backends.base import Backend

# Without a terminal, the interval between lines about the whole sweep.
_LINE_SECONDS = 10.0
# If more runs than this enter a state at the same time, print their number instead of their names.
_NAMED = 4
_MEASURES = {"eval_loss": "held-out loss", "loss": "loss"}


def follow(backend: Backend, sweep: Sweep, target: Target = DEFAULT_TARGET, *, cancel_stuck: bool = True) -> Sweep:
    """Show the sweep's progress on stderr until all its runs have ended, and return its last state.

    A run that is stuck for too long is cancelled, unless `cancel_stuck` is False.

    Raises Detached on Ctrl-C: the runs continue, and the message lists the commands to follow them again.
    """
    if sweep.ended:
        return with_progress(sweep, backend)
    silent = False
    stuck = StuckTimer(backend)
    try:
        with showing(_Lines, _Table) as view:
            for now in watching.watch(sweep, backend):
                if isinstance(now, Unreachable):
                    if not silent:
                        view.print_line(f"{now.message} The runs continue; retrying.")
                    silent = True
                    continue
                if silent:
                    view.print_line("The API server answers again.")
                sweep, silent = now, False
                view.show(sweep)
                for run in filter(stuck.is_over, sweep.runs if cancel_stuck else ()):
                    view.print_line(
                        f"{run.name}: {run.reason} Waiting does not fix this, so the run is cancelled and its chips "
                        "are released."
                    )
                    stuck.cancel_stuck(run)  # the next poll finds it cancelled
    except KeyboardInterrupt:
        raise Detached(f'The runs of the sweep "{sweep.name}" continue.\n{come_back(sweep, target)}') from None
    return sweep


def come_back(sweep: Sweep, target: Target = DEFAULT_TARGET) -> str:
    """Return the commands for a sweep that continues in the background."""
    name = run_argument(sweep.runs[0], target, sweep=sweep.name)
    rows = [
        (f"launcher attach {name}", "show their progress again"),
        (f"launcher status {name}", "show its runs"),
        (f"launcher wait {name}", "wait until all have ended"),
        (f"launcher cancel {name}", "stop them"),
    ]
    return formatting.table([("", *row) for row in rows], headed=False)


def exit_code(sweep: Sweep) -> ExitCode:
    """Return the command's exit code for a sweep that has ended."""
    return ExitCode.DONE if sweep.succeeded else ExitCode.FAILURE


def line(sweep: Sweep) -> str:
    """ "sweep lr: 3 running, 2 queued, 1 succeeded; best held-out loss 4.830 (lr-2: train.learning_rate 3e-4)"."""
    counts = ", ".join(f"{count} {state}" for state, count in sweep.counts.items())
    best = sweep.best
    if best is None:
        return f"sweep {sweep.name}: {counts}"
    values = ", ".join(f"{key} {formatting.swept(value)}" for key, value in best.sweep_values.items())
    loss = getattr(best, sweep.measure)
    return f"sweep {sweep.name}: {counts}; best {_MEASURES[sweep.measure]} {loss:.3f} ({best.name}: {values})"


def table(sweep: Sweep) -> str:
    """Return the sweep's runs as a table, one line per run, the best first."""
    return formatting.table(rows(sweep, sweep.ranked))


def overview(sweep: Sweep) -> str:
    """Return the table and, below it, the line about the whole sweep."""
    runs = table(sweep)
    blocks = runs.startswith("RUN:")  # on a narrow terminal, with an empty line between two runs
    return f"{runs}{'\n\n' if blocks else '\n'}{line(sweep)}"


def summary(sweep: Sweep, target: Target = DEFAULT_TARGET) -> str:
    """Return the result of a sweep as text for stdout."""
    text = overview(sweep)
    failed = [run for run in sweep.runs if run.state is State.FAILED and run.reason]
    if failed:
        text += f"\n{failed[0].name}: {failed[0].reason}"
    return text


def rows(sweep: Sweep, runs: Sequence[RunStatus]) -> list[tuple[str, ...]]:
    """Return table rows for some of the sweep's runs: the values that differ, and the results so far."""
    columns: dict[str, list[str]] = {"RUN": [run.name for run in runs]}
    for key, title in zip(sweep.keys, titles(sweep.keys), strict=True):
        columns[title] = [formatting.swept(run.sweep_values[key]) if key in run.sweep_values else "" for run in runs]
    columns["STATE"] = [run.state.value for run in runs]
    columns["STEP"] = [_step(run) for run in runs]
    columns["LOSS"] = [_loss(run.loss) for run in runs]
    columns["HELD-OUT"] = [_loss(run.eval_loss) for run in runs]
    kept = {title: cells for title, cells in columns.items() if any(cells) or title in ("RUN", "STATE")}
    return [tuple(kept), *zip(*kept.values(), strict=True)]


def titles(keys: Sequence[str]) -> list[str]:
    """Return the column titles for these keys: each key's last part if that is unambiguous."""
    short = [key.rpartition(".")[2] for key in keys]
    return [last if short.count(last) == 1 else key for key, last in zip(keys, short, strict=True)]


def _step(run: RunStatus) -> str:
    if run.step is None:
        return ""
    return f"{run.step}/{run.steps}" if run.steps else str(run.step)


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


# --- no terminal: lines -----------------------------------------------------------------------------------------


class _Lines:
    """Print a line when runs change their states, and periodic lines about the whole sweep."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[int, State]] = {}
        self._last = ""
        self._next = time.monotonic() + _LINE_SECONDS

    def show(self, sweep: Sweep) -> None:
        changed: dict[State, list[RunStatus]] = {}
        for run in sweep.runs:
            if self._states.get(run.name) != (run.attempt, run.state):
                changed.setdefault(run.state, []).append(run)
                self._states[run.name] = (run.attempt, run.state)
        for state, runs in changed.items():
            if len(runs) > _NAMED:
                self.print_line(f"{runs[0].name} … {runs[-1].name}: {len(runs)} are {state}")
                continue
            for run in runs:
                why = f": {run.reason}" if run.reason and state in (State.FAILED, State.RESTARTING) else ""
                self.print_line(f"{run.name}: {state}{why}")
        text = line(sweep)
        if not sweep.ended and time.monotonic() >= self._next and text != self._last:
            self.print_line(text)
            self._last, self._next = text, time.monotonic() + _LINE_SECONDS

    def print_line(self, line: str) -> None:
        output.narrate(line)


# --- a terminal: a table that changes -----------------------------------------------------------------------------


class _Table:
    """The table at the bottom of the terminal, redrawn as the runs progress; for a large sweep, the active runs."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._sweep: Sweep | None = None
        self.live = Live(self, console=console, transient=True, refresh_per_second=4, redirect_stdout=False)

    def show(self, sweep: Sweep) -> None:
        self._sweep = sweep

    def print_line(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        if self._sweep is None:
            return
        room = max(1, (options.max_height or console.height) - 4)
        table = formatting.table(rows(self._sweep, shown(self._sweep, room)), fit=False)
        for text in [*table.splitlines(), line(self._sweep)]:
            fitted = Text(text, no_wrap=True)
            # Leave one column free: a full line makes some terminals wrap.
            fitted.truncate(options.max_width - 1, overflow="ellipsis")
            yield fitted


def shown(sweep: Sweep, room: int) -> list[RunStatus]:
    """Return the runs to show in a table of `room` lines: active runs, then ended runs (best first), then waiting
    runs."""
    if len(sweep.runs) <= room:
        return list(sweep.runs)
    waiting = (State.QUEUED, State.ADMITTED, State.PREEMPTED)
    order = {run.name: number for number, run in enumerate(sweep.ranked)}
    return sorted(sweep.runs, key=lambda run: (run.state in waiting, run.state.ended, order[run.name]))[:room]
