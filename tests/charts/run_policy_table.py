"""The table charts/queues/run-policy.yaml, next to the CRDs of the objects that it is about."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from launcher.paths import charts_dir
from tests.charts import schemas
from tests.charts.schemas import Schema

TABLE = charts_dir() / "queues" / "run-policy.yaml"
KINDS = {
    "RayJob": "ray.io/v1",
    "RayService": "ray.io/v1",
    "RayCluster": "ray.io/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
}
"""The API version of each kind that the table is about."""
ROOTS = {"RayCluster": "ray"}
"""The shape of a kind's spec, if its name is not that of the kind."""


@functools.cache
def table() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(TABLE.read_text())
    return read


class Field(NamedTuple):
    """A field of a CRD, in the spec of a kind."""

    shape: str
    """The shape in the table that the field's map has."""
    keys: tuple[str | int, ...]
    """The keys from the object to the field. The index of every list is 0."""
    schema: Schema
    row: dict[str, Any] | None
    """The field in the table; None if the policy refuses it."""

    @property
    def path(self) -> str:
        return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys).removeprefix(".")


def fields(version: str, kind: str) -> Iterator[Field]:
    """Yield each field of a kind's spec in a version of its project. A refused field is not walked further."""
    group, _, served = KINDS[kind].partition("/")
    schema = schemas.crd_schema(group, version, kind, served)
    if schema is not None:
        yield from _walk(schema["properties"]["spec"], ROOTS.get(kind, kind), ("spec",))


def _walk(schema: Schema, shape: str, above: tuple[str | int, ...]) -> Iterator[Field]:
    rows = table()["shapes"][shape]["fields"]
    for name, below in schema.get("properties", {}).items():
        row = rows.get(name)
        yield Field(shape, (*above, name), below, row)
        if row is None:
            continue
        if next_shape := row.get("shape") or row.get("is"):
            yield from _walk(below, next_shape, (*above, name))
        elif "items" in row:
            yield from _walk(below["items"], row["items"], (*above, name, 0))


def smallest(schema: Schema) -> Any:
    """Return a small value that a schema accepts."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("x-kubernetes-int-or-string"):
        return 1
    kind = schema.get("type", "object")
    kind = next(one for one in kind if one != "null") if isinstance(kind, list) else kind
    if kind == "object":
        return {name: smallest(schema["properties"][name]) for name in schema.get("required", ())}
    if kind == "array":
        return [smallest(schema["items"])]
    return {"string": "x", "integer": max(1, schema.get("minimum", 1)), "number": 1, "boolean": True}[kind]
