"""What `explain` answers with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Evidence:
    """Something that the cluster says: of the object `kind` and `name`, in one line."""

    kind: str
    name: str
    says: str


@dataclass(frozen=True)
class Finding:
    """Why a run is where it is: one sentence, what shows it, and what would help.

    `key` is the dotted key of the run's values that it comes from, where one alone is known.
    """

    headline: str
    evidence: tuple[Evidence, ...] = ()
    suggestions: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True)
class Explanation:
    """The answer of `launcher explain`. Scripts read its fields as JSON: add, never rename.

    `position` is the run's place in its ClusterQueue, 1 for the next; None where it does not wait there, or where
    the place cannot be told.
    """

    name: str
    state: str
    headline: str
    position: int | None = None
    evidence: tuple[Evidence, ...] = ()
    suggestions: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def as_text(self) -> str:
        """For people: the sentence, what shows it, what would help."""
        lines = [self.headline]
        if self.evidence:
            lines.append("")
            lines += [f"  {' '.join(filter(None, (item.kind, item.name)))}: {item.says}" for item in self.evidence]
        if self.suggestions:
            lines += ["", "What would help:", *(f"  - {text}" for text in self.suggestions)]
        return "\n".join(lines)
