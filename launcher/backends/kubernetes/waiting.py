"""Waiting for what others do, with a deadline, and with a word for the person who waits along."""

from __future__ import annotations

import time
from collections.abc import Callable

# What takes longer than this is told.
QUIET_SECONDS = 3.0


class Wait:
    """One wait of at most `seconds`, that looks every `every` seconds; `narrate` is told what it waits for, once."""

    def __init__(self, seconds: float, every: float, narrate: Callable[[str], None]) -> None:
        self._began = time.monotonic()
        self._seconds, self._every, self._narrate = seconds, every, narrate
        self._told = ""

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        return self.elapsed > self._seconds

    def for_(self, what: str) -> None:
        """Pause until the next look; `what` is a sentence, told when the wait gets long, and again when it changes."""
        if self.elapsed >= QUIET_SECONDS and what != self._told:
            self._narrate(what)
            self._told = what
        time.sleep(self._every)
