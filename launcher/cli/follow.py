"""Follow a run until it ends: a live bar on a terminal, periodic plain lines elsewhere.

This module does not depend on the kind of run: all data comes from Backend.status().
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from launcher import distribution, formatting, hooks
from launcher.backends.base import RunStatus, State
from launcher.backends.switches import Followed
from launcher.cli import colour, output
from launcher.errors import Detached, ExitCode
from launcher.k8s.errors import Unreachable
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from launcher.api import Alternatives
    from launcher.backends.base import Backend

# Without a terminal, the interval between lines of progress.
_LINE_SECONDS = 10.0
_NARROWEST_BAR = 8
# Without a terminal, the width above which what a command does is below the command.
_WIDEST = 120


class Live(Protocol):
    """A display that redraws itself on a terminal while its context manager is active."""

    @property
    def live(self) -> contextlib.AbstractContextManager[Any]: ...


class RunView(Protocol):
    """A display of a run: `show` takes its current status, and `print_line` prints a line above it."""

    def show(self, status: RunStatus) -> None: ...

    def print_line(self, line: str) -> None: ...


class LiveRunView(RunView, Live, Protocol):
    """A display of a run on a terminal."""


def follow(
    backend: Backend,
    status: RunStatus,
    target: Target = DEFAULT_TARGET,
    *,
    live: Callable[[Console], LiveRunView] | None = None,
    cancel_stuck: bool = True,
    alternatives: Alternatives | None = None,
) -> RunStatus:
    """Show the run's progress on stderr until it ends, and return its last status.

    `live` is the display on a terminal (None: a progress bar). A run that is stuck for too long is cancelled, unless
    `cancel_stuck` is False. `alternatives` submits another alternative of the run if it waits too long.

    Raises Detached on Ctrl-C: the run continues, and the message lists the commands to follow it again.
    """
    name, restarts, attempt = status.name, status.restarts, status.attempt
    silent = False
    stuck, followed = StuckTimer(backend), Followed()
    try:
        with _view(live or _Bar) as view:
            while True:
                # Do not end a run because of an outdated status.
                if cancel_stuck and not silent and stuck.is_over(status):
                    view.print_line(
                        f'{status.reason} Waiting does not fix this, so the run "{name}" is cancelled and its chips '
                        "are released."
                    )
                    return stuck.cancel_stuck(status)
                if status.restarts > restarts and status.attempt == attempt:
                    view.print_line(f"Restart {status.restarts}" + (f": {status.reason}" if status.reason else "."))
                restarts, attempt = status.restarts, status.attempt
                view.show(status)
                if followed.ended(status):
                    return status
                time.sleep(backend.poll_seconds)
                try:
                    now = backend.status(name)
                    # If a switch was not completed, the run is cancelled or deleted now; that does not end the loop.
                    if alternatives is not None and (switched := alternatives.switch(now)) is not None:
                        view.print_line(switched.message)
                        now = switched.status
                    status = status.carry_over(followed.next(now, status))
                except Unreachable as error:
                    # The run does not depend on this process. Retry: API servers and networks recover.
                    if not silent:
                        view.print_line(f"{error.message} The run continues; retrying.")
                    silent = True
                    continue
                if silent:
                    view.print_line("The API server answers again.")
                silent = False
    except KeyboardInterrupt:
        raise Detached(f'The run "{name}" continues.\n{come_back(status, target)}') from None


def to_the_end(
    backend: Backend,
    status: RunStatus,
    target: Target,
    form: str,
    *,
    values: str = "-f FILE",
    alternatives: Alternatives | None = None,
) -> ExitCode:
    """Follow the run, print its result, and return the command's exit code.

    `values` is as in `summary`, and `alternatives` as in `follow`.
    """
    if status.can_be_cancelled:
        status = follow(backend, status, target, alternatives=alternatives)
        output.narrate(*hooks.ended(status))
    output.emit(status.as_json(), form, summary(status, target, values=values), paint=colour.status)
    return exit_code(status)


class StuckTimer:
    """A timer of how long each followed run has been stuck."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._since: dict[str, float] = {}

    def is_over(self, status: RunStatus) -> bool:
        limit = self._backend.stuck_seconds
        if limit is None or not status.stuck or status.state.ended:
            self._since.pop(status.name, None)
            return False
        waited = time.monotonic() - self._since.setdefault(status.name, time.monotonic())
        return waited >= limit

    def cancel_stuck(self, status: RunStatus) -> RunStatus:
        """Cancel the run and return its new status."""
        self._since.pop(status.name, None)
        return self._backend.cancel(status.name, reason=status.reason)


def come_back(status: RunStatus, target: Target = DEFAULT_TARGET) -> str:
    """Return the commands for a run that continues in the background."""
    run, launcher = run_argument(status, target), distribution.command()
    rows = [
        (f"{launcher} attach {run}", "show its progress again"),
        (f"{launcher} logs -f {run}", "follow its output"),
        (f"{launcher} wait {run}", "wait until it ends"),
        (f"{launcher} cancel {run}", "stop it"),
    ]
    if status.in_cluster:
        rows.insert(0, (f"{launcher} explain {run}", "explain why it waits"))
    return formatting.table([("", *row) for row in rows], headed=False)


def run_argument(status: RunStatus, target: Target = DEFAULT_TARGET, *, sweep: str = "") -> str:
    """Return the name of the run or its `sweep` as a command argument, with the namespace and the requested context."""
    name = sweep or status.name
    if not status.in_cluster:
        return name
    context = f" --context {target.context}" if target.context else ""
    return f"{name}{context} -n {status.namespace}"


def exit_code(status: RunStatus) -> ExitCode:
    """Return the command's exit code for a run that has ended."""
    return ExitCode.DONE if status.state is State.SUCCEEDED else ExitCode.FAILURE


def values_arguments(files: Sequence[str], sets: Sequence[str]) -> str:
    """Return the options that give these values to a later submit; "-f FILE" if a file was read from stdin."""
    if "-" in files or not (files or sets):
        return "-f FILE"
    return shlex.join([*(part for file in files for part in ("-f", file)), *(f"--set={text}" for text in sets)])


def summary(status: RunStatus, target: Target = DEFAULT_TARGET, *, values: str = "-f FILE") -> str:
    """Return the result of a run as lines of text for stdout.

    `values` are the options that give the run's values to submit, as far as they are known.
    """
    rows = [(f"{status.state}", f"{status.name}{_took(status)}")]
    if status.state in (State.FAILED, State.CANCELLED) and status.reason not in ("", "Cancelled."):
        rows.append(("reason", status.reason))
    if status.step is not None:
        rows.append(("steps", f"{status.step} of {status.steps}" if status.steps else f"{status.step}"))
    if status.loss is not None:
        rows.append(("loss", _from_to(status.loss_first, status.loss)))
    if status.eval_loss is not None:
        rows.append(("held-out", _from_to(status.eval_loss_first, status.eval_loss)))
    if status.tokens_per_second is not None:
        rows.append(("speed", f"{formatting.count(status.tokens_per_second)} tokens/s"))
    if status.restarts:
        rows.append(("restarts", str(status.restarts)))
    if status.preemptions:
        rows.append(("preempted", "once" if status.preemptions == 1 else f"{status.preemptions} times"))
    if status.step is not None:
        if checkpoints := _checkpoints(status):
            rows.append(("checkpoints", checkpoints))
        rows.append(("metrics", f"{status.folder}/metrics.jsonl"))
    used = max(len(name) for name, _ in rows) + 2
    following = _next(status, target, values)
    lines = formatting.table(following, headed=False, indent=used).splitlines()
    if formatting.terminal_columns() is None and used + max(map(len, lines)) > _WIDEST:
        # Without a terminal, a command is never divided: it can be copied.
        lines = [line for command, about in following for line in (command, f"      {about}")]
    rows += [("" if number else "next", line) for number, line in enumerate(lines)]
    return formatting.table(rows, headed=False)


def _next(status: RunStatus, target: Target, values: str) -> list[tuple[str, str]]:
    """Return commands to use after the end, and what they do. FILE is the values file of the run."""
    run, launcher = run_argument(status, target), distribution.command()
    logs, report = f"{launcher} logs {run}", f"{launcher} report {run}"
    submit = f"{launcher} submit {values} --name {status.name}"
    if status.state is State.SUCCEEDED:
        if status.step is None:
            return [(logs, "show its output")]
        kept = [word for word in shlex.split(values) if not word.startswith("--set=train.steps=")]
        more = (
            f"{launcher} submit {shlex.join(kept)} --name {status.name} "
            f"--set train.steps={2 * (status.steps or status.step)} --continue"
        )
        rows = [(logs, "show its output"), (report, "write a report with charts"), (more, "continue training")]
        if _checkpoints(status):
            rows.insert(2, (f'{launcher} generate {run} "The"', "generate text with its model"))
        return rows
    if status.state is State.CANCELLED:
        return [(submit, "resume it")]
    if status.step is None:
        return [(logs, "show its output; to submit changed values, add --continue")]
    return [(logs, "show its output"), (submit, "resume it; with other values: --continue")]


def _checkpoints(status: RunStatus) -> str:
    """Return the folder of the run's checkpoints; "" if it has none."""
    folder = f"{status.folder}/checkpoints"
    return folder if "://" in status.folder or Path(folder).is_dir() else ""


def _took(status: RunStatus) -> str:
    if not status.started or not status.ended:
        return ""
    seconds = (datetime.fromisoformat(status.ended) - datetime.fromisoformat(status.started)).total_seconds()
    return f" after {formatting.duration(seconds)}"


def _from_to(first: float | None, last: float) -> str:
    return f"{first:.3f} -> {last:.3f}" if first is not None else f"{last:.3f}"


# --- no terminal: lines -----------------------------------------------------------------------------------------


class _Lines:
    """Print a line when the state changes, periodic lines of progress, and one line at the end."""

    def __init__(self) -> None:
        self._said: tuple[State, str] | None = None
        self._step: int | None = None
        self._next = 0.0
        self._last = ""

    def show(self, status: RunStatus) -> None:
        state = (status.state, _busy(status))
        known = self._said is not None and state in (self._said, (self._said[0], ""))
        if not known and not status.state.ended:
            reported = bool(state[1]) and self._last.endswith(state[1])  # "Restart 1: …" already contains the reason
            self.print_line(f"{status.name}: " + (f"{status.state}" if reported else _state(status)))
            self._said = state
        due = time.monotonic() >= self._next or status.state.ended
        if due and status.step is not None and status.step != self._step and status.state is not State.STARTING:
            self.print_line(f"{status.name}: " + progress(status))
            self._step, self._next = status.step, time.monotonic() + _LINE_SECONDS

    def print_line(self, line: str) -> None:
        self._last = line
        output.narrate(line)


def progress(status: RunStatus) -> str:
    """Return the progress as one line: "step 12/40, loss 8.124, 1,234 tokens/s, 12 s left"."""
    parts = [f"step {status.step}/{status.steps}" if status.steps else f"step {status.step}"]
    if status.loss is not None:
        parts.append(f"loss {status.loss:.3f}")
    if status.tokens_per_second is not None:
        parts.append(f"{formatting.count(status.tokens_per_second)} tokens/s")
    if status.seconds_left and not status.state.ended:
        parts.append(f"{formatting.duration(status.seconds_left)} left")
    return ", ".join(parts)


def _state(status: RunStatus) -> str:
    busy = _busy(status)
    return f"{status.state}: {busy}" if busy else f"{status.state}"


def _busy(status: RunStatus) -> str:
    """Return what the run is waiting for or doing; empty if it is training, because its steps show that."""
    if status.state.ended or (status.state is State.RUNNING and status.step is not None):
        return ""
    position = f"number {status.position} in the queue {status.queue}" if status.position else ""
    return "; ".join(filter(None, [position, status.reason]))


# --- a terminal: one line that changes --------------------------------------------------------------------------


class _Bar:
    """The line at the bottom of the terminal, redrawn as the run progresses."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._status: RunStatus | None = None
        self._since = time.monotonic()
        self.live = Live(self, console=console, transient=True, refresh_per_second=8, redirect_stdout=False)

    def show(self, status: RunStatus) -> None:
        if self._status is None or status.state is not self._status.state:
            self._since = time.monotonic()
        self._status = status

    def print_line(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        status = self._status
        if status is None:
            return
        if status.state is not State.RUNNING or status.step is None:
            state, _, busy = _state(status).partition(": ")
            text = f"{status.name}  {state} {formatting.clock(time.monotonic() - self._since)}  {busy}".rstrip()
            yield Text(text, no_wrap=True, overflow="ellipsis")
            return
        # Leave one column free: a full line makes some terminals wrap.
        text, width = fit(status, options.max_width - 1)
        if not width:
            yield Text(text, no_wrap=True, overflow="ellipsis")
            return
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_row(
            ProgressBar(total=status.steps, completed=status.step, width=width),
            Text(text, no_wrap=True, overflow="ellipsis"),
        )
        yield grid


def fit(status: RunStatus, width: int) -> tuple[str, int]:
    """Return the text of the bar's line in `width` columns, and the columns left for the bar (0: none, no total).

    The least important parts are omitted first: name, speed, time left, loss. While the run does not train, the line
    shows what it does (an evaluation, a checkpoint) instead of speed and time left.
    """
    step = f"{status.step}/{status.steps}" if status.steps else f"step {status.step}"
    loss = f"loss {status.loss:.3f}" if status.loss is not None else ""
    left = f"{formatting.clock(status.seconds_left)} left" if status.seconds_left is not None else ""
    speed = f"{formatting.count(status.tokens_per_second)} tokens/s" if status.tokens_per_second is not None else ""
    if status.reason:
        speed, left = "", status.reason
    for parts in ((step, loss, speed, left, status.name), (step, loss, speed, left), (step, loss, left), (step, loss)):
        text = "  ".join(filter(None, parts))
        if len(text) + 2 + _NARROWEST_BAR <= width:
            break
    else:
        text = step
    room = width - len(text) - 2
    return text, min(room, 40) if status.steps and room >= _NARROWEST_BAR else 0


def _view(live: Callable[[Console], LiveRunView]) -> contextlib.AbstractContextManager[RunView]:
    return showing(_Lines, live)


@contextlib.contextmanager
def showing[V, L: Live](lines: Callable[[], V], live: Callable[[Console], L]) -> Iterator[V | L]:
    """Yield the display for an ongoing task: `live` on a terminal that can draw, `lines` elsewhere.

    While `live` is shown, SIGTERM and SIGHUP act as Ctrl-C: otherwise the terminal would be left without its cursor.
    """
    if not sys.stderr.isatty():
        yield lines()
        return
    console = output.console()
    if console.is_dumb_terminal:
        yield lines()
        return
    shown = live(console)
    previous = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with shown.live:
            yield shown
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
