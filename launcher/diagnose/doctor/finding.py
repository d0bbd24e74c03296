"""The findings of `launcher doctor`, and how they are printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from launcher import formatting


class Level(StrEnum):
    """The level of a finding. `unknown`: this user may not read it, or it did not answer."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


MACHINE = "this machine"
CLUSTER = "the cluster"
CLUSTER_PLAN = "plan of the cluster"
CONTROLLERS = "controllers"
QUEUES = "queues"
CAPACITY = "quota and nodes"
TEAMS = "between teams"
RIGHTS = "your rights"
PARTS = (MACHINE, CLUSTER, CLUSTER_PLAN, CONTROLLERS, QUEUES, CAPACITY, TEAMS, RIGHTS)


@dataclass(frozen=True)
class Finding:
    """The result of one check. Scripts read its fields as JSON: add fields, never rename them.

    `part` is its heading, `subject` what was checked, `says` a sentence, and `hint` what to do, if anything.
    """

    part: str
    level: Level
    subject: str
    says: str
    hint: str = ""


def has_problems(findings: Iterable[Finding]) -> bool:
    """Return whether any finding is a problem. Warnings and unknown findings are not."""
    return any(finding.level is Level.PROBLEM for finding in findings)


def as_text(findings: Iterable[Finding]) -> str:
    """Return the findings as readable text: under their headings, each with its level as a word and its hint below."""

    all_findings = list(findings)
    width = max((len(finding.subject) for finding in all_findings), default=0)
    lines: list[str] = []
    for part in PARTS:
        here = [finding for finding in all_findings if finding.part == part]
        if here:
            lines += ["", part] if lines else [part]
        for finding in here:
            row = ("", finding.level.ljust(7), finding.subject.ljust(width), finding.says)
            lines.append(formatting.table([row], headed=False))
            lines += [f"{'':13}{line}" for line in finding.hint.splitlines()]
    return "\n".join(lines)


def summary(findings: Iterable[Finding]) -> str:
    """Return a sentence with the number of findings of each level that needs attention."""
    counts = dict.fromkeys(Level, 0)
    for finding in findings:
        counts[finding.level] += 1
    words = {
        Level.PROBLEM: ("problem", "problems"),
        Level.WARNING: ("warning", "warnings"),
        Level.UNKNOWN: ("unknown", "unknown"),
    }
    parts = [f"{counts[level]} {some[counts[level] != 1]}" for level, some in words.items() if counts[level]]
    return f"{', '.join(parts)}." if parts else "No problems found."


def join_words(words: Iterable[str], most: int = 5) -> str:
    """Return "a, b and c"; of more than `most` words, the first ones and the number of the others."""
    all_of = list(words)
    if len(all_of) > most:
        return f"{', '.join(all_of[:most])} and {len(all_of) - most} more"
    return " and ".join(filter(None, (", ".join(all_of[:-1]), *all_of[-1:])))


def clause(sentence: str) -> str:
    """Return an error's sentence in lower case, to follow a subject: "the API server does not answer."."""
    first = sentence.partition(" ")[0]
    return (
        sentence[:1].lower() + sentence[1:] if first in ("The", "There", "This", "You", "It", "No", "A") else sentence
    )


def many(number: int, word: str, plural: str = "") -> str:
    """Return a number with its word: "1 node", "8 nodes"."""
    return f"{number} {word if number == 1 else plural or word + 's'}"
