"""Who is informed about the phases of a compile: the interface, and one that shows nothing."""

from __future__ import annotations

from typing import Protocol


class Watch(Protocol):
    """Is told what goes on: `begin` a compile, `phase` what it does now, `say` a sentence that stays."""

    def begin(self, what: str) -> None: ...

    def phase(self, name: str) -> None: ...

    def say(self, line: str) -> None: ...


class Silent:
    """Shows nothing."""

    def begin(self, what: str) -> None:
        pass

    def phase(self, name: str) -> None:
        pass

    def say(self, line: str) -> None:
        pass
