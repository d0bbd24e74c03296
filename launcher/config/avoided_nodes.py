"""The nodes that the hosts of a run avoid, and until when (worker.avoidNodes).

The charts render every entry, because a template that reads the clock would render something else without a change of
the values. `launcher submit` leaves out the entries that have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from launcher.config.checks.problems import WARNING, CheckContext, Problem
from launcher.config.kinds import RunKind
from launcher.config.values.tree import SET, Origin, Values, dotted, set_value

_KEY = ("worker", "avoidNodes")


def _ended(end: str) -> bool:
    """Return whether a date, which is 00:00 UTC of that day, or a time with its zone is past; not if it is invalid."""
    try:
        at = datetime.fromisoformat(end)
    except ValueError:  # a rule of the charts reports it
        return False
    return (at if at.tzinfo else at.replace(tzinfo=UTC)) <= datetime.now(UTC)


def without_ended(user: Values, tree: Mapping[str, Any]) -> Values:
    """Return the user's values without the entries that have ended; `tree` has the valid effective values."""
    nodes: Mapping[str, str] = tree[_KEY[0]][_KEY[1]]
    if not RunKind(tree["run"]["kind"]).has_object or not any(map(_ended, nodes.values())):
        return user
    left = {name: end for name, end in nodes.items() if not _ended(end)}
    return set_value(user, _KEY, left, user.origin(_KEY) or Origin(SET, 1))


def ended(case: CheckContext) -> Iterator[Problem]:
    """Warn of entries that have ended."""
    for name, end in case.tree[_KEY[0]][_KEY[1]].items() if case.kind.has_object or case.release else ():
        if _ended(end):
            path = (*_KEY, name)
            message = f"{dotted(path)} ended at {end}. launcher submit leaves it out, and Helm does not; remove it."
            yield case.problem("nodes", path, message, WARNING)
