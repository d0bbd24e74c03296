"""The interface for progress messages of a compile, and an implementation that shows nothing."""

from __future__ import annotations

from typing import Protocol


class Watch(Protocol):
    """Receives progress: `begin` for a new compile, `phase` for its current phase, `say` for a permanent message."""

    def begin(self, what: str) -> None: ...

    def phase(self, name: str) -> None: ...

    def print_line(self, line: str) -> None: ...


class Silent:
    """Shows nothing."""

    def begin(self, what: str) -> None:
        pass

    def phase(self, name: str) -> None:
        pass

    def print_line(self, line: str) -> None:
        pass
