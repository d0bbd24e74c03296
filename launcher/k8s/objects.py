"""Readers for Kubernetes objects, which are plain JSON data: conditions by type, owners, times, quantities."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
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


def status(obj: Object) -> Object:
    return obj.get("status") or {}


def condition(obj: Object | None, kind: str) -> Object | None:
    """Return the condition of that type, or None if there is none."""
    for entry in (status(obj).get("conditions") or []) if obj else []:
        if entry.get("type") == kind:
            return dict(entry)
    return None


def is_true(obj: Object | None, kind: str) -> bool:
    """Return whether the condition of that type exists and is True."""
    return (condition(obj, kind) or {}).get("status") == "True"


def is_false(obj: Object | None, kind: str) -> bool:
    """Return whether the condition of that type exists and is False."""
    return (condition(obj, kind) or {}).get("status") == "False"


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
    spelled = str(text).strip()
    number = spelled.rstrip("numkKMGTPEi")
    try:
        # "1e3" and "1E3" are numbers; "1E" has the suffix for exa.
        return Decimal(spelled) if spelled[-1:].isdigit() else Decimal(number) * _FACTORS[spelled[len(number) :]]
    except (InvalidOperation, KeyError) as error:
        raise ValueError(f'"{text}" is not a valid quantity') from error
