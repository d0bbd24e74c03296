"""Check an object of a cluster against the types of the fields that the launcher reads: shapes.json has the table.

An API server checks objects against the schemas of their kinds, but an aggregated API server, a CRD of another version
or a schema that keeps unknown fields can return anything. The readers of objects rely on these types.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

from launcher.k8s.objects import parse_time, quantity

type Shape = Callable[[Any], str] | Map | list[Shape] | Mapping[str, Shape]
"""A leaf, which returns what the value must be, or "" if it is that; a Map; a list of one shape; or the keys of an
object. A key that ends with "!" is required. Other keys, and null for an optional key, are accepted."""


class Map:
    """An object with any keys."""

    def __init__(self, values: Shape) -> None:
        self.values = values


def compiled(shape: Shape) -> Callable[[Any], bool]:
    """Return a function that returns whether a value has the shape: `not fault(value, shape)`, but three times faster.

    A list of a thousand runs has some hundred thousand values to check.
    """
    if shape is text:
        return lambda value: isinstance(value, str)
    if isinstance(shape, Map):
        if shape.values is text:  # labels and annotations
            return lambda value: isinstance(value, dict) and set(map(type, value.values())) <= {str}
        of_value = compiled(shape.values)
        return lambda value: isinstance(value, dict) and all(map(of_value, value.values()))
    if isinstance(shape, list):
        of_item = compiled(shape[0])
        return lambda value: isinstance(value, list) and all(map(of_item, value))
    if callable(shape):
        leaf = shape
        return lambda value: not leaf(value)
    required = [key.removesuffix("!") for key in shape if key.endswith("!")]
    check_of = {key.removesuffix("!"): compiled(inner) for key, inner in shape.items()}.get

    def of_object(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        for key, item in value.items():
            check = check_of(key)
            if check is not None and item is not None and not check(item):
                return False
        return not required or all(value.get(key) is not None for key in required)

    return of_object


def fault(value: Any, shape: Shape, path: str = "") -> str:
    """Return what is wrong as a clause, "spec.replicas must be a whole number"; "" if the value has the shape.

    The clause does not quote the value, which may be long.
    """
    if isinstance(shape, Map):
        if not isinstance(value, dict):
            return _differs(path, "an object")
        return next(filter(None, (fault(item, shape.values, f"{path}.{key}") for key, item in value.items())), "")
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _differs(path, "a list")
        return next(filter(None, (fault(item, shape[0], f"{path}[{at}]") for at, item in enumerate(value))), "")
    if callable(shape):
        expected = shape(value)
        return _differs(path, expected) if expected else ""
    if not isinstance(value, dict):
        return _differs(path, "an object")
    for key, inner in shape.items():
        name = key.removesuffix("!")
        item = value.get(name)
        if item is None:
            if name != key:
                return f"{path}.{name} is missing".lstrip(".")
        elif problem := fault(item, inner, f"{path}.{name}"):
            return problem
    return ""


def _differs(path: str, expected: str) -> str:
    return f"{path.lstrip('.') or 'it'} must be {expected}"


# --- leaves -------------------------------------------------------------------------------------------------------


def text(value: Any) -> str:
    return "" if isinstance(value, str) else "text"


def name(value: Any) -> str:
    return "" if isinstance(value, str) and value else "a name"


def flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "a boolean"


def number(value: Any) -> str:
    """A whole number of at most 64 bits."""
    whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return "" if whole else "a whole number"


def seconds(value: Any) -> str:
    """A duration of at most a thousand years, which can be subtracted from a time."""
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 31_536_000_000
    return "" if whole else "a number of seconds"


def amount(value: Any) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool) and _is_amount(value):
        return ""
    return "a quantity, such as 4, 500m or 16Gi"


@functools.lru_cache(maxsize=1024)  # the objects of a list repeat most amounts and times
def _is_amount(value: str | float) -> bool:
    try:
        quantity(value)
    except ValueError:
        return False
    return True


def moment(value: Any) -> str:
    """An RFC 3339 time with a zone, which has a place in UTC and can be compared with others."""
    return "" if isinstance(value, str) and _is_moment(value) else "a time, such as 2026-01-31T12:00:00Z"


@functools.lru_cache(maxsize=4096)
def _is_moment(value: str) -> bool:
    try:
        time = parse_time(value)
        return time.tzinfo is not None and 1 <= time.astimezone(UTC).year <= 9998
    except (ValueError, OverflowError):
        return False


# --- objects ------------------------------------------------------------------------------------------------------

_LEAVES = {"text": text, "name": name, "flag": flag, "number": number, "seconds": seconds, "amount": amount}
_LEAVES["moment"] = moment
_TABLE = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def _shape(given: Any) -> Any:
    """Return the shape of a value of the table, in which a word is a leaf or a part, and "*" is the values of a Map.

    "<<" names the part that an object begins with.
    """
    if isinstance(given, str):
        return _LEAVES.get(given) or _part(given)
    if isinstance(given, list):
        return [_shape(given[0])]
    if "*" in given:
        return Map(_shape(given["*"]))
    begin = _part(given["<<"]) if "<<" in given else {}
    return begin | {key: _shape(inner) for key, inner in given.items() if key != "<<"}


@functools.cache
def _part(part: str) -> Any:
    return _shape(_TABLE["parts"][part])


PENDING: Shape = _shape(_TABLE["PendingWorkload"])
"""A PendingWorkload of Kueue's visibility API."""

SHAPES: Mapping[str, Mapping[str, Shape]] = {
    kind: _shape(given) for kind, given in _TABLE.items() if kind not in ("parts", "PendingWorkload")
}
"""The shape of each kind that the launcher reads. Of other kinds, it reads only the metadata."""

OTHER: Mapping[str, Shape] = {"metadata!": _part("meta")}


@functools.cache
def checker(kind: str) -> Callable[[Any], bool]:
    """Return a function that returns whether an object of a kind has its shape."""
    return compiled(SHAPES.get(kind, OTHER))
