"""The values of runs and of queues, from the charts' schemas, whose descriptions are the comments in values.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from launcher.config.checks.rules import schema
from launcher.products.fleet.values import schema as fleet_schema
from launcher.products.gke.values import schema as gke_schema
from tests.docs.reference.parts import code, page, table

Node = dict[str, Any]

_RUN = """\
The values of [charts/run](../../charts/run/README.md), [charts/ray-cluster](../../charts/ray-cluster/README.md) and
[charts/serve](../../charts/serve/README.md):
one file can serve all of them. Each chart has only its own keys (`helm show values charts/serve`) and ignores those of
the others, which `launcher check` reports as warnings. A file contains only the values that differ from the
defaults. `launcher values -f FILE --all --origins` shows all values of a run and their origins.
Unknown keys are errors. For how files are merged, see
[Override preset values](../how-to/override-preset-values.md)."""

_QUEUES = """\
The values of [charts/queues](../../charts/queues/README.md), which `launcher install queues` installs. In the keys,
`NAME` is a name that you choose. A key of an entry that is `null` has its default. For how the values work together,
see [Share a cluster between teams](../how-to/share-a-cluster.md)."""


_CLUSTER = """\
The values of `launcher cluster`: the key `gke`, in addition to the [values of queues](queues-values.md). In the keys,
`NAME` is the name of a flavor. See [Create a GKE cluster](../how-to/create-a-gke-cluster.md)."""


_FLEET = """\
The values of `launcher fleet -f FILE`: the key `fleet`, and `common.prices` of the values of
[queues](queues-values.md).
In the keys, `NAME` is the name of a flavor. See [See the fleet](../how-to/see-the-fleet.md)."""


def cluster() -> str:
    return _of_product("Cluster values", _CLUSTER, "gke", gke_schema())


def fleet() -> str:
    return _of_product("Fleet values", _FLEET, "fleet", fleet_schema())


def _of_product(title: str, intro: str, key: str, schema_of_product: Any) -> str:
    rows = [row for row in _rows(key, schema_of_product["properties"][key]) if row[0] != code(key)]
    shown = table(("key", "type", "default", "description"), rows)
    return page(title, f"launcher/products/{key}/values.schema.json", " ".join(intro.split("\n")), shown)


def run() -> str:
    return _page("Run values", _RUN, "run")


def queues() -> str:
    return _page("Queues values", _QUEUES, "queues")


def _page(title: str, intro: str, chart: str) -> str:
    parts = [" ".join(intro.split("\n"))]
    for key, node in schema(chart)["properties"].items():
        if key == "global":
            continue
        if key == "common":
            says = "`common.accelerators` is the table of accelerators, see [Accelerators](accelerators.md). "
            says += "`common.prices` has the prices of chips, see "
            says += "[Forecast memory, time and cost](../how-to/forecast.md#prices)."
            node = {"description": says}
        rows = list(_rows(key, node))
        about = node.get("description", "") if rows[0][0] != code(key) or len(rows) > 1 or key == "common" else ""
        shown = [row for row in rows if row[0] != code(key)] if len(rows) > 1 else rows
        parts += [f"## {key}", *([about] if about else [])]
        if key != "common":
            parts.append(table(("key", "type", "default", "description"), shown))
    return page(title, f"charts/{chart}/values.schema.json", *parts)


def _rows(path: str, node: Node) -> Iterator[tuple[str, str, str, str]]:
    # The keys of pods, and fields of Kubernetes.
    inner = node.get("properties", {}) if path not in ("head.pods", "worker.pods", "pods.affinity") else {}
    named = node.get("additionalProperties")
    default = json.dumps(node["default"], ensure_ascii=False) if "default" in node else ""
    yield code(path), _takes(node), code(default), node.get("description", "")
    for key, child in inner.items():
        yield from _rows(f"{path}.{key}", child)
    if isinstance(named, dict) and ("properties" in named or named.get("description")):
        for row in _rows(f"{path}.NAME", named):
            if row[0] != code(f"{path}.NAME"):
                yield row


def _takes(node: Node) -> str:
    if "enum" in node:
        members = [member for member in node["enum"] if member is not None]
        return ", ".join(code(json.dumps(member) if member == "" else member) for member in members)
    kind = node.get("type", "")
    words = {"integer": "whole number", "string": "text", "boolean": "true, false", "object": "map", "array": "list"}
    kinds = [kind] if isinstance(kind, str) else kind
    names = [words.get(each, each) for each in kinds if each != "null" or node.get("default", "") is None]
    low, high = node.get("minimum"), node.get("maximum")
    bounds = [f"from {low}"] if low is not None else []
    if high is not None and high < 2**31 - 1:
        bounds.append(f"to {high}")
    return " ".join([" or ".join(names), *bounds])
