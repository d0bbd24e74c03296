"""charts/queues for its tests: values as trees, and the objects or errors that Helm returns for them."""

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
    """Return the values in a YAML text."""
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
    """Return `base` with `over` merged into it. None in `over` removes the key."""
    result = {key: value for key, value in base.items() if over.get(key, value) is not None}
    for key, value in over.items():
        if value is not None:
            result[key] = merged(result.get(key) or {}, value) if isinstance(value, dict) else value
    return result


def render(helm: Path, values: Tree, folder: Path, *options: str) -> list[Tree]:
    """Return the objects that the chart renders from `values`. Raises HelmError."""
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    return schemas.objects(template(helm, CHART, [file], *options))


def rejections(helm: Path, values: Tree, folder: Path, *options: str) -> list[str]:
    """Return the sorted sentences that reject `values`; empty if the chart accepts them."""
    try:
        render(helm, values, folder, *options)
    except HelmError as error:
        return sentences_of(error)
    return []


def sentences_of(error: HelmError) -> list[str]:
    """Return the sorted sentences of the chart in an error, without the lines that Helm prints around them."""
    sentences = []
    for line in str(error).splitlines():
        sentence = line.removeprefix("- ").strip()
        around = ("level=INFO", "Error: ", "slipway-queues:", "Use --debug")
        if sentence and not sentence.startswith(around):
            sentences.append(sentence)
    return sorted(sentences)


def one(objects: list[Tree], kind: str, name: str) -> Tree:
    """Return the object of that kind and name; fail if there is not exactly one."""
    found = [obj for obj in objects if (obj["kind"], obj["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def names(objects: list[Tree]) -> set[tuple[str, str]]:
    return {(obj["kind"], obj["metadata"]["name"]) for obj in objects}


def quotas(spec: Tree) -> dict[str, dict[str, Tree]]:
    """Return the quotas of all resource groups of a spec, by flavor and resource."""
    return {
        flavor["name"]: {resource["name"]: _limits(resource) for resource in flavor["resources"]}
        for group in spec["resourceGroups"]
        for flavor in group["flavors"]
    }


def _limits(resource: Tree) -> Tree:
    return {key: value for key, value in resource.items() if key != "name"}
