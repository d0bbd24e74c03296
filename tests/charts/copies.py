"""`make charts`: write what the charts share into each chart (docs/decisions/0012-copies-in-the-charts.md).

A chart must contain all its files: Flux, ZIP files and most registries drop symbolic links. The sources are edited, and
this writes the copies of the library chart, and the values of each chart from charts/_values.yaml and
charts/_values.schema.json. `make lint` and tests/charts/test_copies.py compare them.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from launcher.config.checks.value_rules import table as read_table
from tests.charts.rule_schemas import template_patterns, with_rules

CHECKOUT = Path(__file__).parents[2]

COPIES = {
    "queues/charts/slipway-common": "common",
    "ray-cluster/charts/slipway-common": "common",
    "run/charts/slipway-common": "common",
    "serve/charts/slipway-common": "common",
}
"""The source of each copied folder, as paths in the folder of the charts."""

SUBJECTS = {"run": "the run", "ray-cluster": "the cluster", "serve": "the model"}
"""The words for {it} in descriptions: what each chart with shared values installs."""

_VALUES, _SCHEMA = "_values.yaml", "_values.schema.json"
_PATTERNS = "common/templates/_patterns.tpl"
_KEY = re.compile(r"( *)([\w-]+):( .+)?")
_KEYS = """\
# common.ownValues reads this file, which `make charts` writes: keys of other charts, keys with an empty default, and
# maps from which null removes an entry (* is any entry).
others:
  {others}
empty:
  {empty}
maps:
  {maps}
"""
_MAPS = [
    *("common.prices", "common.accelerators"),
    *(f"common.accelerators.*.{key}" for key in ("topologies", "machineTypes", "hostMemoryGiB", "hostCpus")),
    *(
        "commonLabels",
        "commonAnnotations",
        "cluster.groups",
        "cluster.labels",
        "storage.sidecarLimits",
        "data.mixture",
        "pods.*",
        "pods.extraVolumes.*",
    ),
    *(
        f"{part}.{key}"
        for part in ("head", "worker")
        for key in (
            "pods",
            "pods.*",
            "pods.extraVolumes.*",
            "env",
            "secretEnv",
            "envFrom",
            "nodeSelector",
            "avoidNodes",
            "tolerations",
        )
    ),
]
Node = dict[str, Any]


def outdated(charts: Path) -> list[str]:
    """Return the copies that differ from their source, and symbolic links, as paths in the folder `charts`."""
    found = {copy for copy, source in COPIES.items() if _content(charts / copy) != _content(charts / source)}
    found |= {path for path, text in generated(charts).items() if _content(charts / path) != {"": text.encode()}}
    found |= {str(path.relative_to(charts)) for path in charts.rglob("*") if path.is_symlink()}
    return sorted(found)


def faults(charts: Path) -> list[str]:
    """Return a sentence for each copy that is outdated."""
    sources = {path: _VALUES if path.endswith(_VALUES[1:]) else _SCHEMA for path in generated(charts)}
    says = {path: f"is not a copy of {charts.name}/{source}" for path, source in COPIES.items()}
    says |= {path: f"does not follow from {charts.name}/{source}" for path, source in sources.items()}
    return [
        f"{charts.name}/{path} {says[path]}; edit that one and run `make charts`."
        if path in says
        else f"{charts.name}/{path} is a symbolic link, which many tools drop; replace it with its target."
        for path in outdated(charts)
    ]


def write(charts: Path) -> None:
    """Write every copy and every generated file in the folder `charts`."""
    (charts / _PATTERNS).write_text(template_patterns(read_table(charts)), encoding="utf-8")
    for copy, source in COPIES.items():
        target = charts / copy
        if target.is_symlink():
            target.unlink()
        elif target.exists():
            shutil.rmtree(target)
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(charts / source, target)
    for path, text in generated(charts).items():
        (charts / path).unlink(missing_ok=True)
        (charts / path).write_text(text, encoding="utf-8")


def generated(charts: Path) -> dict[str, str]:
    """Return the text of values.yaml, values.schema.json and keys.yaml of the charts with shared values."""
    source = json.loads((charts / _SCHEMA).read_text(encoding="utf-8"))
    _repeat_keys(source, source["properties"])
    values = (charts / _VALUES).read_text(encoding="utf-8")
    table = read_table(charts)
    files = {_PATTERNS: template_patterns(table)}
    for chart in SUBJECTS:
        schema = with_rules(chart, _part(source, chart), table)
        files[f"{chart}/values.yaml"] = _with_descriptions(values, schema)
        files[f"{chart}/values.schema.json"] = _text(schema, "") + "\n"
        others, empty = json.dumps([*_others(schema)]), json.dumps(_empty(schema))
        files[f"{chart}/keys.yaml"] = _KEYS.format(
            others=_lines(others), empty=_lines(empty), maps=_lines(json.dumps(_MAPS))
        )
    return files


def _repeat_keys(node: Node, sections: Node) -> None:
    """Give sections with x-keys-of the keys of that section, without defaults. Null removes one that is not an enum."""
    for child in node.get("properties", {}).values():
        _repeat_keys(child, sections)
    if "x-keys-of" in node:
        node["additionalProperties"] = False
        node["properties"] = {
            key: {word: value for word, value in child.items() if word != "default"}
            | ({"type": [child["type"], "null"]} if "enum" not in child else {})
            for key, child in sections[node.pop("x-keys-of")]["properties"].items()
        }


def _charts(node: Node) -> Sequence[str]:
    """Return the charts that have a key: x-charts, or else those of the keys below it, or else all."""
    below = dict.fromkeys(chart for child in node.get("properties", {}).values() for chart in _charts(child))
    return node.get("x-charts") or [*below] or [*SUBJECTS]


def _part(node: Any, chart: str) -> Any:
    """Return a chart's part of the schema. A key of other charts has any value there, and x-charts names them."""
    if isinstance(node, str):
        return node.replace("{it}", SUBJECTS[chart])
    if not isinstance(node, dict):
        return node
    if chart not in _charts(node):
        others = " and ".join(f"charts/{other}" for other in _charts(node))
        return {"x-charts": _charts(node), "description": f"Belongs to {others}, and is ignored here."}
    made = {key: _part(value, chart) for key, value in node.items() if key != "x-charts"}
    for key in ("title", "description"):
        if isinstance(node.get(key), dict) and {*node[key]} <= {*SUBJECTS}:
            made[key] = node[key][chart]
    if "required" in node and "properties" in made:
        made["required"] = [key for key in node["required"] if "x-charts" not in made["properties"][key]]
    return made


def _others(node: Node, above: str = "") -> Iterator[str]:
    """Yield the dotted keys of other charts."""
    for key, child in node.get("properties", {}).items():
        if "x-charts" in child:
            yield above + key
        yield from _others(child, f"{above}{key}.")


def _empty(node: Node) -> Node:
    """Return the keys whose default is empty. Null is valid for them."""
    found: Node = {}
    for key, child in node.get("properties", {}).items():
        if child.get("default") in ("", [], {}) and key not in node.get("required", ()):
            found[key] = child["default"]
        elif below := _empty(child):
            found[key] = below
    return found


def _lines(text: str) -> str:
    return textwrap.fill(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _with_descriptions(values: str, schema: Node) -> str:
    """Return the lines of the keys that the schema has for itself, with its descriptions, and their comments."""
    lines = [f"# {schema['title']}. Written by `make charts` from charts/_values.yaml."]
    above: list[str] = []
    path: list[str] = []
    kept = False
    for line in values.split("\n\n", 1)[1].splitlines():  # without the comment about the source
        if match := _KEY.fullmatch(line):
            indent, key, value = match.groups()
            path = [*path[: len(indent) // 2], key]
            node = schema
            for part in path:
                node = node.get("properties", {}).get(part, {})
            if kept := bool(node) and "x-charts" not in node:
                lines += [*above, *([f"{indent}# -- {node['description']}"] if value else []), line]
            above = []
        elif line.lstrip().startswith("#"):
            above.append(line)
        elif kept:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _text(node: Any, indent: str, *, keys: bool = False) -> str:
    """Format as JSON, with a line for each key of the values."""
    if isinstance(node, list) and '"properties"' in json.dumps(node):
        return "[\n" + ",\n".join(f"{indent}  {json.dumps(item, ensure_ascii=False)}" for item in node) + f"\n{indent}]"
    if not isinstance(node, dict) or not (keys or '"properties"' in json.dumps(node)):
        return json.dumps(node, ensure_ascii=False)
    inner = f"{indent}  "
    items = [
        f"{inner}{json.dumps(key)}: {_text(child, inner, keys=key == 'properties')}" for key, child in node.items()
    ]
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


def _content(path: Path) -> dict[str, bytes]:
    """Return the content of a file, or of every file in a folder by its path in it; empty if there is none."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


if __name__ == "__main__":
    write(CHECKOUT / "charts")
    sys.exit("\n".join(faults(CHECKOUT / "charts")) or 0)
