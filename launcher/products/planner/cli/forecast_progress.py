"""The progress of a compile on stderr: one line with a clock on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from launcher import formatting
from launcher.cli import output
from launcher.products.planner.forecast.compile_progress import Watch

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_PHASES = {
    "importing": "starting the compiler",
    "shaping": "laying out the model",
    "compiling": "compiling",
    "reading": "reading the compiled program",
    "waiting": "waiting for another forecast, which compiles the same program",
}


class _Shown:
    """A display created at the first compile: importing it takes longer than reading an answer from the cache."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._view: Watch | None = None

    def begin(self, what: str) -> None:
        if self._view is None:
            from launcher.cli.follow import showing

            self._view = self._stack.enter_context(showing(_Lines, _Line))
        self._view.begin(what)

    def phase(self, name: str) -> None:
        if self._view is not None:
            self._view.phase(name)

    def print_line(self, line: str) -> None:
        if self._view is None:
            output.narrate(line)
        else:
            self._view.print_line(line)


@contextmanager
def shown() -> Iterator[Watch]:
    """Yield the display of the progress on stderr."""
    with ExitStack() as stack:
        yield _Shown(stack)


class _Lines:
    """Print a line for each compile, and one for each of its long phases."""

    def __init__(self) -> None:
        self._what = ""

    def begin(self, what: str) -> None:
        self._what = what
        self.print_line(f"Compiling {what}: this takes half a minute or more; the result is cached.")

    def phase(self, name: str) -> None:
        if name in ("compiling", "waiting"):
            self.print_line(f"{self._what}: {_PHASES[name]}.")

    def print_line(self, line: str) -> None:
        output.narrate(line)


class _Line:
    """One line at the bottom of the terminal with the current task and its elapsed time."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._what = self._phase = ""
        self._since = time.monotonic()
        self.live = Live(self, console=console, transient=True, refresh_per_second=4, redirect_stdout=False)

    def begin(self, what: str) -> None:
        self._what, self._phase, self._since = what, "", time.monotonic()

    def phase(self, name: str) -> None:
        self._phase = _PHASES.get(name, name)

    def print_line(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        if self._what:
            text = f"{self._what}  {formatting.clock(time.monotonic() - self._since)}  {self._phase}".rstrip()
            yield Text(text, no_wrap=True, overflow="ellipsis")
