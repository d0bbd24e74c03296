"""charts/queues for its tests: values as trees, and what Helm makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.charts import schemas
from tests.charts.helm import HelmError, template

CHECKOUT = Path(__file__).parents[2]
CHART = CHECKOUT / "charts" / "queues"
PRESETS = CHECKOUT / "values" / "queues"

Tree = dict[str, Any]


def tree(text: str) -> Tree:
    """Values from YAML."""
    read: Tree = yaml.safe_load(text) or {}
    return read


BASE = tree("""
flavors:
  v6e-4x4: {accelerator: v6e, topology: 4x4}
  cpu: {accelerator: cpu}
cohorts:
  all: {}
clusterQueues:
  research:
    cohort: all
    quota: {v6e-4x4: {slices: 4}, cpu: {cpu: "40", memory: 80Gi}}
  product:
    quota: {v6e-4x4: {slices: 2}, cpu: {cpu: "20", memory: 40Gi}}
teams:
  research: {clusterQueue: research}
  product: {clusterQueue: product}
""")
"""Two queues, one of them in a cohort, and a team for each."""


def merged(base: Tree, over: Tree) -> Tree:
    """`base` with `over` on top; None takes a key out, wherever it came from."""
    made = {key: value for key, value in base.items() if over.get(key, value) is not None}
    for key, value in over.items():
        if value is not None:
            made[key] = merged(made.get(key) or {}, value) if isinstance(value, dict) else value
    return made


def render(helm: Path, values: Tree, folder: Path, *options: str) -> list[Tree]:
    """The objects that the chart makes of `values`. Raises HelmError."""
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    return schemas.objects(template(helm, CHART, [file], *options))


def wrong(helm: Path, values: Tree, folder: Path, *options: str) -> list[str]:
    """The sentences that refuse `values`, sorted; empty where they are taken."""
    try:
        render(helm, values, folder, *options)
    except HelmError as error:
        return sentences_of(error)
    return []


def sentences_of(error: HelmError) -> list[str]:
    """The sentences of a refusal, without what Helm says around them; the rest has to be Helm's own."""
    sentences = []
    for line in str(error).splitlines():
        ours = line.removeprefix("- ").strip()
        around = ("level=INFO", "walk.go", "Error: ", "queues:", "Use --debug")
        if ours and not ours.startswith(around):
            sentences.append(ours)
    return sorted(sentences)


def one(objects: list[Tree], kind: str, name: str) -> Tree:
    """The object of that kind and name, of which there is exactly one."""
    found = [obj for obj in objects if (obj["kind"], obj["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def names(objects: list[Tree]) -> set[tuple[str, str]]:
    return {(obj["kind"], obj["metadata"]["name"]) for obj in objects}


def quotas(spec: Tree) -> dict[str, dict[str, Tree]]:
    """A spec's quotas by flavor and resource, the groups in one."""
    return {
        flavor["name"]: {resource["name"]: _limits(resource) for resource in flavor["resources"]}
        for group in spec["resourceGroups"]
        for flavor in group["flavors"]
    }


def _limits(resource: Tree) -> Tree:
    return {key: value for key, value in resource.items() if key != "name"}
