"""The schemas of upstream's CRDs as tables of facts, in tables.json.gz.

    python -m tests.upstream.tables       (make tables) write the file from the original CRDs
    zless tests/upstream/tables.json.gz   read it

A table has the tree of fields of a CRD with type, format, required, enum, default, pattern, limits, list type and map
keys; and scope, names, versions and subresources of its kind. It has no descriptions, no CEL expressions, no warnings
and no printer columns.

The file has two parts. `crds` has the CRDs by project, version and name. `nodes` has each schema that occurs more than
once, under the name of its field: "$container" refers to it. A schema with only a type is the name of that type.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Schema = dict[str, Any]
Crd = dict[str, Any]
Crds = dict[str, dict[str, list[Crd]]]
"""The CRDs by project ("kueue") and version ("0.19.2")."""

FILE = Path(__file__).parent / "tables.json.gz"

# The keywords of a schema that a table keeps. A CRD with any other keyword is an error until it is in one of the sets.
LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf"})
SCHEMAS = frozenset({"items", "additionalProperties", "not"})
MAPS_OF_SCHEMAS = frozenset({"properties"})
FACTS = frozenset(
    {
        *("type", "format", "required", "enum", "default", "pattern", "nullable"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
        *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
        *("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"),
    }
)
EXPRESSIONS = frozenset({"x-kubernetes-validations"})
LEFT_OUT = EXPRESSIONS | {"description", "title", "externalDocs", "example"}
KEPT_OF_A_VERSION = ("name", "served", "storage", "deprecated", "subresources")


def kept(crd: Crd, *, expressions: bool = False) -> Crd:
    """Return what a table keeps of a CRD, on request with the CEL rules. Raises ValueError for an unknown keyword."""
    names = FACTS | (EXPRESSIONS if expressions else frozenset())
    versions = [
        {key: version[key] for key in KEPT_OF_A_VERSION if key in version}
        | {"schema": {"openAPIV3Schema": _kept(version["schema"]["openAPIV3Schema"], names, version["name"])}}
        for version in crd["spec"]["versions"]
    ]
    return document(crd["metadata"]["name"], crd["spec"], versions)


def document(name: str, spec: dict[str, Any], versions: list[dict[str, Any]]) -> Crd:
    """Return a CRD with the scope and names of `spec`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Kubernetes rejects a CRD of a group *.k8s.io without this annotation.
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved"}},
        "spec": {"group": name.partition(".")[2], "names": spec["names"], "scope": spec["scope"], "versions": versions},
    }


def _kept(schema: Schema, names: frozenset[str], path: str) -> Schema:
    result: Schema = {}
    for key, value in schema.items():
        if key in MAPS_OF_SCHEMAS:
            result[key] = {name: _kept(child, names, f"{path}.{name}") for name, child in value.items()}
        elif key in LISTS_OF_SCHEMAS:
            result[key] = [_kept(child, names, path) for child in value]
        elif key in SCHEMAS and isinstance(value, dict):
            result[key] = _kept(value, names, path)
        elif key in names | SCHEMAS:
            result[key] = value
        elif key not in LEFT_OUT:
            raise ValueError(f"{path}: unknown keyword {key}; add it to FACTS or LEFT_OUT in tests/upstream/tables.py")
    return result


def pack(crds: Crds) -> dict[str, Any]:
    """Return the content of the file. The CRDs have only what a table keeps."""
    packer = _Packer(crds)
    packed = {
        project: {
            version: {crd["metadata"]["name"]: packer.crd(crd) for crd in found} for version, found in versions.items()
        }
        for project, versions in crds.items()
    }
    return {"nodes": dict(sorted(packer.nodes.items())), "crds": packed}


class _Packer:
    """Replaces each schema that occurs more than once by the name of a node."""

    def __init__(self, crds: Crds) -> None:
        self.nodes: dict[str, Any] = {}
        self._names: dict[str, str] = {}  # by the schema as text
        self._counts: Counter[str] = Counter()
        for versions in crds.values():
            for found in versions.values():
                for crd in found:
                    for version in crd["spec"]["versions"]:
                        self._count(version["schema"]["openAPIV3Schema"])

    def _count(self, schema: Schema) -> None:
        text = _text(schema)
        self._counts[text] += 1
        if self._counts[text] == 1:
            for _, child in _children(schema):
                self._count(child)

    def crd(self, crd: Crd) -> dict[str, Any]:
        spec = crd["spec"]
        versions = {}
        for version in spec["versions"]:
            others = {key: value for key, value in version.items() if key not in ("name", "schema")}
            versions[version["name"]] = others | {"schema": self.schema(version["schema"]["openAPIV3Schema"], "object")}
        return {"scope": spec["scope"], "names": spec["names"], "versions": versions}

    def schema(self, schema: Schema, name: str) -> Any:
        if schema.keys() == {"type"}:
            return schema["type"]
        text = _text(schema)
        if self._counts[text] == 1:
            return self._packed(schema, name)
        if text not in self._names:
            free = next(free for free in _numbered(name) if free not in self.nodes)
            self._names[text] = free
            self.nodes[free] = None  # the names of its children differ from its own
            self.nodes[free] = self._packed(schema, name)
        return f"${self._names[text]}"

    def _packed(self, schema: Schema, name: str) -> Schema:
        packed = dict(schema)
        for key in schema.keys() & MAPS_OF_SCHEMAS:
            packed[key] = {field: self.schema(child, field) for field, child in schema[key].items()}
        for key in schema.keys() & LISTS_OF_SCHEMAS:
            packed[key] = [self.schema(child, name) for child in schema[key]]
        for key in schema.keys() & SCHEMAS:
            if isinstance(schema[key], dict):
                packed[key] = self.schema(schema[key], f"{name}.{key}")
        return packed


def _children(schema: Schema) -> Iterator[tuple[str, Schema]]:
    for key, value in schema.items():
        if key in MAPS_OF_SCHEMAS:
            yield from value.items()
        elif key in LISTS_OF_SCHEMAS:
            yield from ((key, child) for child in value)
        elif key in SCHEMAS and isinstance(value, dict):
            yield key, value


def _text(schema: Schema) -> str:
    return json.dumps(schema, sort_keys=True)


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


class Tables:
    """The tables in a file."""

    def __init__(self, file: Path = FILE) -> None:
        content = json.loads(gzip.decompress(file.read_bytes()))
        self._packed_nodes: dict[str, Any] = content["nodes"]
        self._crds: dict[str, Any] = content["crds"]
        self._nodes: dict[str, Schema] = {}

    def versions(self) -> dict[str, list[str]]:
        """Return the versions of each project, the oldest first."""
        return {project: list(versions) for project, versions in self._crds.items()}

    def crds(self, project: str, version: str) -> list[Crd]:
        """Return the CRDs of a version. They share nodes, so do not change them. Raises KeyError."""
        return [self._crd(name, packed) for name, packed in self._crds[project][version].items()]

    def _crd(self, name: str, packed: dict[str, Any]) -> Crd:
        versions = [
            {"name": version} | entry | {"schema": {"openAPIV3Schema": self._schema(entry["schema"])}}
            for version, entry in packed["versions"].items()
        ]
        return document(name, packed, versions)

    def _schema(self, packed: Any) -> Schema:
        if isinstance(packed, str):
            return self._node(packed[1:]) if packed.startswith("$") else {"type": packed}
        schema = dict(packed)
        for key in packed.keys() & MAPS_OF_SCHEMAS:
            schema[key] = {field: self._schema(child) for field, child in packed[key].items()}
        for key in packed.keys() & LISTS_OF_SCHEMAS:
            schema[key] = [self._schema(child) for child in packed[key]]
        for key in packed.keys() & SCHEMAS:
            if not isinstance(packed[key], bool):
                schema[key] = self._schema(packed[key])
        return schema

    def _node(self, name: str) -> Schema:
        if name not in self._nodes:
            self._nodes[name] = self._schema(self._packed_nodes[name])
        return self._nodes[name]


def write(file: Path, crds: Crds) -> None:
    """Write the tables of these CRDs. The same CRDs give the same bytes."""
    file.write_bytes(gzip.compress((json.dumps(pack(crds), indent=1) + "\n").encode(), mtime=0))
