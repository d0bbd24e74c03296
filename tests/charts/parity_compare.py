"""Two trees, field by field, against a table of the differences that there should be."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class _Word:
    def __init__(self, word: str) -> None:
        self.word = word

    def __repr__(self) -> str:
        return self.word


ABSENT = _Word("(absent)")
"""In a row: the field is not there."""

ANYTHING = _Word("(anything)")
"""In a row: the field is there, and what it holds is tested elsewhere."""


class Row(NamedTuple):
    """A difference that there should be. Fields of lists are found by name: containers[trainer].image."""

    path: str
    theirs: Any
    ours: Any
    reason: str


def under(prefixes: Sequence[str], rows: Iterable[Row]) -> list[Row]:
    """The rows below each of the prefixes."""
    rows = list(rows)
    return [row._replace(path=f"{prefix}.{row.path}") for prefix in prefixes for row in rows]


def faults(theirs: Any, ours: Any, rows: Sequence[Row]) -> list[str]:
    """Differences that no row tells, and rows that tell of none; in sentences."""
    found = {path: (a, b) for path, a, b in differences(theirs, ours)}
    listed = {row.path: row for row in rows}
    said = [f"{path} is in the table twice" for path, count in Counter(row.path for row in rows).items() if count > 1]
    for path, (a, b) in found.items():
        row = listed.get(path)
        if row is None:
            said.append(f"{path}: theirs {_spell(a)}, ours {_spell(b)}; the table does not know it")
        elif not (_fits(row.theirs, a) and _fits(row.ours, b)):
            said.append(
                f"{path}: theirs {_spell(a)}, ours {_spell(b)}; "
                f"the table says {_spell(row.theirs)} and {_spell(row.ours)}"
            )
    said += [f"{path}: the same in both; the table says it differs" for path in listed if path not in found]
    said += [f"{row.path}: the table gives no reason" for row in rows if not row.reason.strip()]
    return said


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each difference at the lowest field that both have above it: its path, theirs and ours."""
    theirs, ours = _named(theirs), _named(ours)
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            below = f"{path}{key}" if key.startswith("[") else f"{path}.{key}".removeprefix(".")
            yield from differences(theirs.get(key, ABSENT), ours.get(key, ABSENT), below)
    elif isinstance(theirs, bool) is not isinstance(ours, bool) or theirs != ours:
        yield path, theirs, ours


def _named(value: Any) -> Any:
    """A list as a map: of named things by their names, else by number."""
    if not isinstance(value, list):
        return value
    for key in ("mountPath", "containerPort", "groupName", "name"):
        if value and all(isinstance(item, Mapping) and key in item for item in value):
            named = {f"[{item[key]}]": item for item in value}
            assert len(named) == len(value), f"two items have the same {key}"
            return named
    return {f"[{number}]": item for number, item in enumerate(value)}


def _fits(said: Any, value: Any) -> bool:
    if said is ANYTHING:
        return value is not ABSENT
    return bool(_plain(said) == _plain(value)) and isinstance(said, bool) is isinstance(value, bool)


def _plain(value: Any) -> Any:
    value = _named(value)
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _spell(value: Any) -> str:
    return repr(value) if isinstance(value, _Word) else json.dumps(value, default=str, ensure_ascii=False)
