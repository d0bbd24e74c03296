"""Wait for other processes with a deadline, and report a long wait to the user."""

from __future__ import annotations

import time
from collections.abc import Callable

# A wait that takes longer than this is reported.
QUIET_SECONDS = 3.0


class Wait:
    """A wait of at most `seconds` that polls every `every` seconds. `narrate` is called with what it waits for."""

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
        """Pause until the next poll. The sentence `what` is reported if the wait is long, and again if it changes."""
        if self.elapsed >= QUIET_SECONDS and what != self._told:
            self._narrate(what)
            self._told = what
        time.sleep(self._every)
