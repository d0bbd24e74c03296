"""Check Terraform JSON against the schema of the provider google, as `terraform validate` does.

`terraform validate` itself needs the provider's program, which is not on PyPI or the Go module proxy.
"""

from __future__ import annotations

import graphlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.products.gke.provider_schema import FILE, READ

COMMENT = "//"
META = {"depends_on", "lifecycle"}
# Without provider: a module with such a block cannot be used with count, for_each or depends_on.
_TOP = {COMMENT, "terraform", "variable", "data", "resource", "output"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_EXPRESSION = re.compile(r"(?<!\$)\$\{([^}]*)\}")
_REFERENCE = re.compile(r"((?:data\.)?\w+\.[\w-]+)\.(\w+)(?:\[0\]\.(\w+))?")
# Read-only arguments of blocks, which provider-schema.json does not have. Source: the provider's documentation.
_READ_IN_BLOCKS = {("google_container_cluster", "master_auth", "cluster_ca_certificate")}
_SIMPLE: dict[str, tuple[type, ...]] = {"string": (str,), "bool": (bool,), "number": (int, float)}


def problems(document: Mapping[str, Any]) -> list[str]:
    """Return what Terraform would reject; [] if it is valid. The document must be JSON without Python's own types."""
    schema = json.loads(FILE.read_text(encoding="utf-8"))["types"]
    found = [f"{key}: unknown block" for key in document.keys() - _TOP]
    for address, kind, arguments in _objects(document):
        if kind not in schema:
            found.append(f"{address}: unknown type")
            continue
        if not _NAME.fullmatch(address.rpartition(".")[2]):
            found.append(f"{address}: not a valid name")
        own = {key: value for key, value in arguments.items() if key not in META}
        found += _block(address, own, schema[kind])
    found += _lifecycles(document, schema)
    found += _references(document, schema)
    return sorted(found)


def _objects(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the address, the type in the schema, and the arguments of each resource and data source."""
    for prefix, part in (("", "resource"), ("data.", "data")):
        for kind, objects in document.get(part, {}).items():
            for name, arguments in objects.items():
                yield f"{prefix}{kind}.{name}", f"{prefix}{kind}", arguments


def _block(where: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        form = schema.get(key)
        if form is None or key == READ:
            yield f"{where}.{key}: unknown argument"
        elif isinstance(form, str):
            yield from _value(f"{where}.{key}", value, form.removesuffix("!"))
        else:
            blocks = value if isinstance(value, list) else [value]
            if form["max"] and len(blocks) > form["max"]:
                yield f"{where}.{key}: more than {form['max']} blocks"
            for block in blocks:
                if isinstance(block, dict):
                    yield from _block(f"{where}.{key}", block, form["block"])
                else:
                    yield f"{where}.{key}: {block!r} is not a block"
    for key, form in schema.items():
        required = form.endswith("!") if isinstance(form, str) else key != READ and form["required"]
        if required and key not in arguments:
            yield f"{where}.{key}: missing"


def _value(where: str, value: Any, form: str) -> Iterator[str]:
    if isinstance(value, str) and _EXPRESSION.fullmatch(value):
        return  # of any type
    outer, _, inner = form.removesuffix(")").partition("(")
    if outer in _SIMPLE:
        if not isinstance(value, _SIMPLE[outer]) or isinstance(value, bool) != (outer == "bool"):
            yield f"{where}: {value!r} is not a {outer}"
    elif outer == "map":
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is not a map"
        else:
            for key, item in value.items():
                yield from _value(f"{where}.{key}", item, inner)
    elif not isinstance(value, list):
        yield f"{where}: {value!r} is not a list"
    else:
        for item in value:
            yield from _value(where, item, inner)


def _lifecycles(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    for address, kind, arguments in _objects(document):
        for key, value in arguments.get("lifecycle", {}).items():
            if key != "ignore_changes":
                yield f"{address}.lifecycle.{key}: unknown argument"
            else:
                yield from (f"{address}.lifecycle: unknown {name}" for name in value if name not in schema[kind])


def _references(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the references to what is not declared, and a cycle of references."""
    kinds = {address: kind for address, kind, _ in _objects(document)}
    graph: dict[str, set[str]] = {}
    sources = [(address, arguments) for address, _, arguments in _objects(document)]
    sources += [(f"output.{name}", output) for name, output in document["output"].items()]
    for source, arguments in sources:
        graph[source] = set()
        for address in arguments.get("depends_on", []):
            if address not in kinds:
                yield f"{source}.depends_on: {address} is not declared"
            graph[source].add(address)
        for expression in _EXPRESSION.findall(json.dumps(arguments)):
            if expression.startswith("var."):
                if expression.removeprefix("var.") not in document["variable"]:
                    yield f"{source}: {expression} is not declared"
                continue
            match = _REFERENCE.fullmatch(expression)
            if match is None or match[1] not in kinds:
                yield f"{source}: {expression} is not declared"
            elif (kinds[match[1]], match[2], match[3]) in _READ_IN_BLOCKS:
                graph[source].add(match[1])
            elif match[3] or match[2] not in schema[kinds[match[1]]][READ]:
                yield f"{source}: {expression} is not an attribute"
            else:
                graph[source].add(match[1])
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"a cycle: {error.args[1]}"
