"""Compare two trees field by field with a table of the expected differences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class _Marker:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


ABSENT = _Marker("(absent)")
"""In a row: the field does not exist."""

ANYTHING = _Marker("(anything)")
"""In a row: the field exists, and its value is tested elsewhere."""


class Row(NamedTuple):
    """An expected difference. A path names the items of a list: containers[trainer].image."""

    path: str
    theirs: Any
    ours: Any
    reason: str


def under(prefixes: Sequence[str], rows: Iterable[Row]) -> list[Row]:
    """Return the rows with each of the prefixes in front of their paths."""
    rows = list(rows)
    return [row._replace(path=f"{prefix}.{row.path}") for prefix in prefixes for row in rows]


def faults(theirs: Any, ours: Any, rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each difference without a row, and for each row without a difference."""
    found = {path: (a, b) for path, a, b in differences(theirs, ours)}
    listed = {row.path: row for row in rows}
    sentences = [
        f"{path} is in the table twice" for path, count in Counter(row.path for row in rows).items() if count > 1
    ]
    for path, (a, b) in found.items():
        row = listed.get(path)
        if row is None:
            sentences.append(f"{path}: theirs {_format(a)}, ours {_format(b)}; the table does not know it")
        elif not (_matches(row.theirs, a) and _matches(row.ours, b)):
            sentences.append(
                f"{path}: theirs {_format(a)}, ours {_format(b)}; "
                f"the table says {_format(row.theirs)} and {_format(row.ours)}"
            )
    sentences += [f"{path}: the same in both; the table says it differs" for path in listed if path not in found]
    sentences += [f"{row.path}: the table gives no reason" for row in rows if not row.reason.strip()]
    return sentences


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each difference as its path, their value and ours. The path ends at the first field that only one has."""
    theirs, ours = _named(theirs), _named(ours)
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            below = f"{path}{key}" if key.startswith("[") else f"{path}.{key}".removeprefix(".")
            yield from differences(theirs.get(key, ABSENT), ours.get(key, ABSENT), below)
    elif isinstance(theirs, bool) is not isinstance(ours, bool) or theirs != ours:
        yield path, theirs, ours


def _named(value: Any) -> Any:
    """Return a list as a map: by the name of its items, or by number if they have none."""
    if not isinstance(value, list):
        return value
    for key in ("mountPath", "containerPort", "groupName", "name"):
        if value and all(isinstance(item, Mapping) and key in item for item in value):
            named = {f"[{item[key]}]": item for item in value}
            assert len(named) == len(value), f"two items have the same {key}"
            return named
    return {f"[{number}]": item for number, item in enumerate(value)}


def _matches(expected: Any, value: Any) -> bool:
    if expected is ANYTHING:
        return value is not ABSENT
    return bool(_plain(expected) == _plain(value)) and isinstance(expected, bool) is isinstance(value, bool)


def _plain(value: Any) -> Any:
    value = _named(value)
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _format(value: Any) -> str:
    return repr(value) if isinstance(value, _Marker) else json.dumps(value, default=str, ensure_ascii=False)
