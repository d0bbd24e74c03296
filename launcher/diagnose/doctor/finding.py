"""What the doctor answers with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How a finding is: `unknown` is what this user is not allowed to look at, or what did not answer."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


MACHINE = "this machine"
CLUSTER = "the cluster"
CONTROLLERS = "controllers"
QUEUES = "queues"
CAPACITY = "quota and nodes"
RIGHTS = "your rights"
PARTS = (MACHINE, CLUSTER, CONTROLLERS, QUEUES, CAPACITY, RIGHTS)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. Scripts read its fields as JSON: add, never rename.

    `part` is the heading that it stands under, `subject` what it is about, `says` a sentence, `hint` what to do,
    where there is something to do.
    """

    part: str
    level: Level
    subject: str
    says: str
    hint: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def has_problems(findings: Iterable[Finding]) -> bool:
    """Whether something is wrong; a warning, or what could not be looked at, is not."""
    return any(finding.level is Level.PROBLEM for finding in findings)


def as_text(findings: Iterable[Finding]) -> str:
    """For people: the findings under their headings, each with its level as a word, hints below."""
    from launcher import formatting

    found = list(findings)
    width = max((len(finding.subject) for finding in found), default=0)
    lines: list[str] = []
    for part in PARTS:
        here = [finding for finding in found if finding.part == part]
        if here:
            lines += ["", part] if lines else [part]
        for finding in here:
            lines.append(formatting.table([("", finding.level.ljust(7), finding.subject.ljust(width), finding.says)]))
            lines += [f"{'':13}{line}" for line in finding.hint.splitlines()]
    return "\n".join(lines)


def summary(findings: Iterable[Finding]) -> str:
    """How many of each level there are that ask for attention, in a sentence."""
    counts = dict.fromkeys(Level, 0)
    for finding in findings:
        counts[finding.level] += 1
    words = {
        Level.PROBLEM: ("problem", "problems"),
        Level.WARNING: ("warning", "warnings"),
        Level.UNKNOWN: ("thing that could not be looked at", "things that could not be looked at"),
    }
    said = [f"{counts[level]} {some[counts[level] != 1]}" for level, some in words.items() if counts[level]]
    return f"{', '.join(said)}." if said else "All is well."


def join_words(words: Iterable[str], most: int = 5) -> str:
    """ "a, b and c"; of many the first few, and how many more."""
    all_of = list(words)
    if len(all_of) > most:
        return f"{', '.join(all_of[:most])} and {len(all_of) - most} more"
    return " and ".join(filter(None, (", ".join(all_of[:-1]), *all_of[-1:])))


def clause(sentence: str) -> str:
    """An error's sentence as what follows a subject, which begins small: "the API server does not answer."."""
    first = sentence.partition(" ")[0]
    return (
        sentence[:1].lower() + sentence[1:] if first in ("The", "There", "This", "You", "It", "No", "A") else sentence
    )


def many(number: int, word: str, plural: str = "") -> str:
    """ "1 node", "8 nodes"."""
    return f"{number} {word if number == 1 else plural or word + 's'}"
