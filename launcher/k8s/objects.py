"""Kubernetes objects, which are plain JSON data, as typed values: metadata, conditions by type, times, quantities.

launcher.k8s.pods, .nodes, .deployments and .kueue add the fields of a kind. The types of the fields have been
checked when the object was read (launcher.k8s.shapes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

Object = Mapping[str, Any]
"""An object of the API server, to read."""
Manifest = dict[str, Any]
"""An object to change or to send."""

_FACTORS = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
# "1e3" and "1E3" are numbers; "1E" has the suffix for exa. Kubernetes stores no amount outside of 1e-9 and 2**63, and a
# larger exponent would make a number of gigabytes.
_QUANTITY = re.compile(
    r"(?P<number>[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))((?P<exponent>[eE][+-]?[0-9]{1,2})|(?P<unit>[numkMGTPE]|[KMGTPE]i))?",
    re.ASCII,
)
_QUANTITY_LENGTH = 64


def name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def namespace(obj: Object) -> str:
    return str(obj["metadata"].get("namespace") or "")


def title(obj: Object) -> str:
    """Return an object's name for messages, such as "LocalQueue research/research"."""
    space = namespace(obj)
    return f"{obj['kind']} {space}/{name(obj)}" if space else f"{obj['kind']} {name(obj)}"


def uid(obj: Object) -> str:
    return str(obj["metadata"].get("uid") or "")


def label(obj: Object, key: str) -> str:
    return str((obj["metadata"].get("labels") or {}).get(key) or "")


def annotation(obj: Object, key: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(key) or "")


def drop(value: Any, path: Sequence[str]) -> None:
    """Remove the field at a path from JSON data; "*" in it is each item of a list. Ignores what does not exist."""
    key, *rest = path
    if key == "*":
        for item in value if isinstance(value, list) else ():
            drop(item, rest)
    elif isinstance(value, dict):
        if rest:
            drop(value.get(key), rest)
        else:
            value.pop(key, None)


def status(obj: Object) -> Object:
    return obj.get("status") or {}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of an object. `since` is the time of its last change (RFC 3339), or "".

    A condition that the object does not have is false as a Boolean, and its fields are "".
    """

    status: str = ""
    reason: str = ""
    message: str = ""
    since: str = ""

    def __bool__(self) -> bool:
        return bool(self.status)

    @property
    def is_true(self) -> bool:
        return self.status == "True"

    @property
    def is_false(self) -> bool:
        return self.status == "False"


_NO_CONDITION = Condition()


def conditions(status: Object) -> dict[str, Condition]:
    """Return the conditions of an object's status, by type."""
    by_type: dict[str, Condition] = {}
    for entry in status.get("conditions") or []:
        by_type.setdefault(
            entry["type"],
            Condition(
                entry["status"],
                entry.get("reason") or "",
                entry.get("message") or "",
                entry.get("lastTransitionTime") or "",
            ),
        )
    return by_type


def condition(obj: Object | None, kind: str) -> Condition:
    """Return the condition of that type."""
    return conditions(status(obj)).get(kind, _NO_CONDITION) if obj else _NO_CONDITION


def is_true(obj: Object | None, kind: str) -> bool:
    """Return whether the condition of that type exists and is True."""
    return condition(obj, kind).is_true


@dataclass(frozen=True, eq=False)
class ApiObject:
    """An object of the API server. Its fields are parsed when they are first used; subclasses add those of a kind."""

    raw: Object = field(repr=False)

    @property
    def name(self) -> str:
        return name(self.raw)

    @property
    def namespace(self) -> str:
        return namespace(self.raw)

    @property
    def uid(self) -> str:
        return uid(self.raw)

    @property
    def created(self) -> str:
        """The time of its creation (RFC 3339), or ""."""
        return str(self.raw["metadata"].get("creationTimestamp") or "")

    @property
    def deleting(self) -> bool:
        return bool(self.raw["metadata"].get("deletionTimestamp"))

    @cached_property
    def labels(self) -> Mapping[str, str]:
        return self.raw["metadata"].get("labels") or {}

    @property
    def spec(self) -> Object:
        return self.raw.get("spec") or {}

    @property
    def status(self) -> Object:
        return status(self.raw)

    @cached_property
    def conditions(self) -> Mapping[str, Condition]:
        return conditions(self.status)

    def condition(self, kind: str) -> Condition:
        """Return the condition of that type."""
        return self.conditions.get(kind, _NO_CONDITION)

    def is_true(self, kind: str) -> bool:
        """Return whether the condition of that type exists and is True."""
        return self.condition(kind).is_true

    def label(self, key: str) -> str:
        return label(self.raw, key)

    def annotation(self, key: str) -> str:
        return annotation(self.raw, key)


def counted(text: object) -> int | None:
    """Return the number that a text spells in at most nine digits; None for any other text."""
    return int(str(text)) if re.fullmatch(r"[0-9]{1,9}", str(text)) else None


def owner_uids(obj: Object) -> set[str]:
    return {str(owner.get("uid")) for owner in obj["metadata"].get("ownerReferences") or []}


def parse_time(text: str) -> datetime:
    """Parse an RFC 3339 time. Raises ValueError if it is not valid."""
    return datetime.fromisoformat(text)


def seconds_since(text: str, now: datetime | None = None) -> float:
    """Return the seconds from an RFC 3339 time to now."""
    return ((now or datetime.now(UTC)) - parse_time(text)).total_seconds()


def quantity(text: object) -> Decimal:
    """Parse a Kubernetes quantity ("500m", "16Gi", 4). Raises ValueError if it is not valid."""
    match = _QUANTITY.fullmatch(str(text).strip()) if len(str(text)) <= _QUANTITY_LENGTH else None
    if match is None:
        raise ValueError(f'"{str(text)[:_QUANTITY_LENGTH]}" is not a valid quantity')
    return Decimal(match["number"] + (match["exponent"] or "")) * _FACTORS[match["unit"] or ""]
