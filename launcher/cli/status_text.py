"""The status of a run as text for people: as a table, or as one that changes on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher import formatting
from launcher.backends.base import RunStatus

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


def text(status: RunStatus, starts: str = "", *, fit: bool = True) -> str:
    """Return the fields of the status that are known, with rounded numbers and local times.

    `starts` is the expected start of a run that waits. With `fit`, long fields are wrapped on a terminal.
    """
    rows = [
        ("name", status.name),
        ("state", str(status.state)),
        ("reason", status.reason),
        ("kind", status.kind),
        ("context", status.context),
        ("namespace", status.namespace if status.in_cluster else ""),
        ("team", status.team),
        ("queue", f"{status.queue} #{status.position}" if status.position else status.queue),
        ("starts", starts),
        ("priority", status.priority),
        ("slices", status.machines),
        ("step", _step(status)),
        ("loss", _loss(status.loss_first, status.loss)),
        ("held-out", _loss(status.eval_loss_first, status.eval_loss)),
        ("speed", "" if status.tokens_per_second is None else f"{formatting.count(status.tokens_per_second)} tokens/s"),
        ("time left", "" if status.seconds_left is None else formatting.duration(status.seconds_left)),
        ("submitted", formatting.local_time(status.submitted)),
        ("started", formatting.local_time(status.started)),
        ("ended", formatting.local_time(status.ended)),
        ("restarts", str(status.restarts or "")),
        ("attempt", str(status.attempt)),
        ("sweep", status.sweep),
        ("swept", ", ".join(f"{key} {formatting.swept(value)}" for key, value in status.sweep_values.items())),
        ("folder", status.folder),
    ]
    return formatting.table([row for row in rows if row[1]], headed=False, fit=fit)


def _step(status: RunStatus) -> str:
    if status.step is None:
        return ""
    return f"{status.step} of {status.steps}" if status.steps else str(status.step)


def _loss(first: float | None, last: float | None) -> str:
    if last is None:
        return ""
    return f"{first:.3f} -> {last:.3f}" if first is not None else f"{last:.3f}"


class StatusTable:
    """The status at the bottom of the terminal, redrawn as the run progresses."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._status: RunStatus | None = None
        self.live = Live(self, console=console, transient=True, refresh_per_second=4, redirect_stdout=False)

    def show(self, status: RunStatus) -> None:
        self._status = status

    def print_line(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        if self._status is None:
            return
        for line in text(self._status, fit=False).splitlines():
            fitted = Text(line, no_wrap=True)
            # Leave one column free: a full line makes some terminals wrap.
            fitted.truncate(options.max_width - 1, overflow="ellipsis")
            yield fitted
