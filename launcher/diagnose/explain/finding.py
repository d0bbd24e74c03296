"""The results of `explain`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """A fact from the cluster on the object `kind` and `name`, in one line."""

    kind: str
    name: str
    says: str


@dataclass(frozen=True)
class Finding:
    """The reason for a run's state: one sentence, the evidence, and suggestions.

    `key` is the dotted key of the run's values that causes it, if exactly one is known.
    """

    headline: str
    evidence: tuple[Evidence, ...] = ()
    suggestions: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True)
class Explanation:
    """The result of `launcher explain`. Scripts read its fields as JSON: add fields, never rename them.

    `position` is the run's position in its ClusterQueue, 1 for the next run; None if it does not wait there, or if its
    position is unknown.
    """

    name: str
    state: str
    headline: str
    position: int | None = None
    evidence: tuple[Evidence, ...] = ()
    suggestions: tuple[str, ...] = ()

    def as_text(self) -> str:
        """Return the explanation as readable text: the sentence, the evidence, the suggestions."""
        lines = [self.headline]
        if self.evidence:
            lines.append("")
            lines += [f"  {' '.join(filter(None, (item.kind, item.name)))}: {item.says}" for item in self.evidence]
        if self.suggestions:
            lines += ["", "Suggestions:", *(f"  - {text}" for text in self.suggestions)]
        return "\n".join(lines)
