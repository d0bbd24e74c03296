"""`launcher logs` of a sweep: the output of its runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from launcher.cli import output
from launcher.errors import LauncherError


def logs(runs: Sequence[str], lines: Callable[[str], Iterator[str]], *, follow: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines of the runs: with `follow` as they are written, otherwise one run after the other.

    A run whose log cannot be read is named on stderr. Raises LauncherError if this is true of all.
    """
    arrived: queue.SimpleQueue[tuple[str, str | LauncherError | None]] = queue.SimpleQueue()

    def read(run: str) -> None:
        try:
            for line in lines(run):
                arrived.put((run, line))
        except LauncherError as error:
            arrived.put((run, error))
        finally:
            arrived.put((run, None))

    errors = []
    for batch in [runs] if follow else [[run] for run in runs]:
        for run in batch:
            threading.Thread(target=read, args=(run,), daemon=True).start()  # a daemon: Ctrl-C ends the command
        active = len(batch)
        while active:
            run, line = arrived.get()
            if isinstance(line, str):
                yield run, line
                continue
            active -= line is None
            if line is not None:
                errors.append(line)
                output.narrate(line.message if run in line.message else f"{run}: {line.message}")
    if len(errors) == len(runs):
        raise errors[0]
