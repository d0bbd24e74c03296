"""A validator for the part of JSON Schema that the charts' values.schema.json use. It does not import jsonschema.

Importing jsonschema takes a third of the time budget for reporting a typing error. Helm checks the same files with its
own validator; a test compares this one with jsonschema on random schemas and trees.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KEYWORDS = {
    *("type", "enum", "minimum", "maximum", "minLength", "minItems", "minProperties", "items"),
    *("required", "properties", "additionalProperties", "$schema", "title", "description", "default", "pattern"),
    *("x-charts", "x-instead"),
    *("if", "then", "allOf", "$defs"),
}
"""The supported keywords. Any other keyword raises ValueError, so that no rule is silently ignored.

if, then, allOf and $defs are the rules across keys for Helm; the launcher evaluates their source: see value_rules.py.
x-instead has the advice for values that people expect of an enum.
"""

_LARGEST = 2**31 - 1  # the largest 32-bit integer in Kubernetes; messages about -1 do not mention it

NO_VALUE = "has no value (null); set a value, or remove the key."
"""The end of the message about a required key; CheckContext.problem changes it if no layer has the key."""

_NAMES = {
    "object": "a map of keys to values",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing (null)",
}


@dataclass(frozen=True)
class Violation:
    """A schema violation at `path`.

    `rule` is unknown-key, missing-key, or the schema's keyword. `says` is the end of a sentence that begins with the
    key: "run.maxRestarts" + " is text ("four"); it must be a whole number."
    """

    path: tuple[str, ...]
    rule: str
    says: str


def violations(schema: Mapping[str, Any], value: Any, path: tuple[str, ...] = ()) -> Iterator[Violation]:
    """Yield all violations of `schema` in `value`, in tree order. Those of a list's items have the list's path."""
    unknown = set(schema) - KEYWORDS
    if unknown:
        raise ValueError(f"schema keywords {sorted(unknown)} are not supported here")
    kinds = schema.get("type")
    if kinds is not None:
        wanted = [kinds] if isinstance(kinds, str) else kinds
        if not any(_is(value, kind) for kind in wanted):
            named = " or ".join(_NAMES[kind] for kind in wanted if kind != "null" or len(wanted) == 1)
            quotes = "; put it in quotes" if "string" in wanted and isinstance(value, (int, float)) else ""
            yield Violation(path, "type", f"is {spell_value(value)}; it must be {named}{quotes}.")
            return
    if "enum" in schema and not any(_equal(value, member) for member in schema["enum"]):
        members = ", ".join(str(member) or '""' for member in schema["enum"] if member is not None)
        yield Violation(path, "enum", f"is {json.dumps(value)}; it must be one of {members}.")
    if _is(value, "number"):
        low, high = schema.get("minimum"), schema.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = [f"at least {low}"] if low is not None else []
            if high is not None and (high != _LARGEST or value > high):
                bounds.append(f"at most {high}")
            yield Violation(path, "minimum", f"is {value}; it must be {' and '.join(bounds)}.")
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        yield Violation(path, "minLength", "is empty; set a value.")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield Violation(path, "pattern", f'is "{value}"; it must match {schema["pattern"]}.')
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield Violation(path, "minItems", f"has {len(value)} items; it must have at least {schema['minItems']}.")
        for item in value if "items" in schema else ():
            for violation in violations(schema["items"], item):
                yield Violation(path, violation.rule, f"has an item that {violation.says}")
    if isinstance(value, dict):
        yield from _map(schema, value, path)


def _map(schema: Mapping[str, Any], value: dict[str, Any], path: tuple[str, ...]) -> Iterator[Violation]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    if len(value) < schema.get("minProperties", 0):
        yield Violation(path, "minProperties", "is empty; set a key.")
    for key in schema.get("required", ()):
        if key not in value:
            yield Violation((*path, key), "missing-key", NO_VALUE)
    for key, child in value.items():
        if key in properties:
            yield from violations(properties[key], child, (*path, key))
        elif others is False:
            yield Violation((*path, key), "unknown-key", "is unknown.")
        elif others is not True:
            yield from violations(others, child, (*path, key))


def leaves(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key that the schema names, including maps."""
    for key, child in schema.get("properties", {}).items():
        yield (*path, key)
        yield from leaves(child, (*path, key))


def keys_of_others(schema: Mapping[str, Any], value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key in `value` that belongs to other charts (x-charts)."""
    for key, child in schema.get("properties", {}).items():
        if isinstance(value, dict) and key in value:
            yield from [(*path, key)] if "x-charts" in child else keys_of_others(child, value[key], (*path, key))


def value_at(tree: Any, path: Sequence[str]) -> Any:
    """Return the value of a key; None if there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def spell_value(value: Any) -> str:
    """Format a value with its kind for messages: text ("four"), the number 4, a list, true."""
    if isinstance(value, str):
        return f'text ("{value if len(value) <= 40 else value[:37] + "..."}")'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    return _NAMES["array" if isinstance(value, list) else "object"]


def _is(value: Any, kind: str) -> bool:
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "integer":
        return _is(value, "number") and (isinstance(value, int) or value.is_integer())
    return isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}[kind])


def _equal(a: Any, b: Any) -> bool:
    """Compare as JSON does: 1 equals 1.0, but true does not equal 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(a == b)
