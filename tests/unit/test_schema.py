"""The launcher's JSON Schema validator accepts and rejects the same values as jsonschema, at the same paths."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.config.checks.schema import leaves, violations

KEYS = st.sampled_from(["a", "b", "c"])
TYPES = ["object", "array", "string", "integer", "number", "boolean", "null"]
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, -2.5]), st.sampled_from(["", "x"])
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def schemas(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "minimum": st.integers(-2, 2),
            "maximum": st.integers(-2, 2),
            "minLength": st.integers(0, 1),
            "minItems": st.integers(0, 2),
            "minProperties": st.integers(0, 1),
            "required": st.lists(KEYS, unique=True, max_size=2),
            "properties": st.dictionaries(KEYS, inner, max_size=3),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "description": st.just("what it is"),
        },
    )


SCHEMAS = st.recursive(schemas(st.just({})), schemas, max_leaves=6)


@given(SCHEMAS, VALUES)
def test_it_agrees_with_jsonschema(schema: dict[str, Any], value: Any) -> None:
    valid = not list(jsonschema.Draft202012Validator(schema).iter_errors(value))
    assert valid == (not list(violations(schema, value)))


def test_an_unsupported_keyword_is_rejected() -> None:
    with pytest.raises(ValueError, match="anyOf"):
        list(violations({"anyOf": []}, 1))


@pytest.mark.parametrize(
    ("schema", "value", "path", "rule", "message"),
    [
        ({"type": "integer"}, "four", (), "type", 'is text ("four"); it must be a whole number.'),
        ({"type": ["string", "null"]}, 4, (), "type", "is the number 4; it must be text; put it in quotes."),
        ({"enum": ["a", ""]}, "b", (), "enum", 'is "b"; it must be one of a, "".'),
        ({"minimum": 0, "maximum": 0.5}, 2, (), "minimum", "is 2; it must be at least 0 and at most 0.5."),
        ({"additionalProperties": False}, {"x": 1}, ("x",), "unknown-key", "is unknown."),
        ({"required": ["x"]}, {}, ("x",), "missing-key", "has no value (null); set a value, or remove the key."),
        (
            {"items": {"type": "string"}},
            ["a", 1],
            (),
            "type",
            "has an item that is the number 1; it must be text; put it in quotes.",
        ),
    ],
)
def test_violations_are_described(
    schema: dict[str, Any], value: Any, path: tuple[str, ...], rule: str, message: str
) -> None:
    (found,) = violations(schema, value)
    assert (found.path, found.rule, found.says) == (path, rule, message)


def test_leaves_names_every_key() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"properties": {"b": {}}}, "c": {}}}
    assert list(leaves(schema)) == [("a",), ("a", "b"), ("c",)]
