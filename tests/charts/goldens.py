"""`make goldens`: write what the presets render to files that are small enough to be reviewed as code.

The base run, which no preset changes, tutorials and queues are written in full. Clusters, models and slices are
written as differences from the base run. The run config is one line of JSON in an annotation; a golden shows it once,
as YAML, below the object that has it. The long expressions of the admission policy are left out: tests/cluster
evaluates them. Chart versions are v0.0.0, so that a release does not change the files. A golden
proves that a render did not change, not that it is correct: test_presets.py checks it against the schemas.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.charts.presets import CHARTS_OF_PRESETS, Render, renders
from tests.tools import tool

FOLDER = Path(__file__).with_name("goldens")
FULL = ("base", "tutorials", "queues", "serve")
DIFFERENCES = {"clusters": ("ray-job", "job-set", "ray-cluster"), "models": ("ray-job",), "slices": ("ray-job",)}
"""Groups that are written as differences, with their variants. Models and slices change the same fields in each."""
CONFIG = "slipway.dev/run-config"


def goldens(found: Iterable[Render]) -> dict[str, str]:
    """Return the text of each golden file by its name."""
    renders_by_variant = {(render.preset, render.variant): (render, readable(render)) for render in found}
    files: dict[str, str] = {}
    for (preset, variant), (render, text) in renders_by_variant.items():
        if render.group in FULL:
            name = "base" if render.group == "base" else preset.replace("/", "-")
            files[f"{name}.yaml" if render.group in CHARTS_OF_PRESETS else f"{name}.{variant}.yaml"] = text
        elif variant in DIFFERENCES.get(render.group, ()):
            _, base = renders_by_variant["base", variant]
            lines = difflib.unified_diff(base.splitlines(), text.splitlines(), n=0, lineterm="")
            changed_lines = [line if not line.startswith("@@") else "@@" for line in list(lines)[2:]]
            # There are many slices, so each accelerator has its own file.
            name = preset.partition("-")[0].replace("/", "-") if render.group == "slices" else render.group
            files.setdefault(f"{name}.diff", "")
            files[f"{name}.diff"] += "\n".join([f"=== {preset} as {variant}", *changed_lines, ""])
    return files


def readable(render: Render) -> str:
    """Return a render as YAML that people can read and compare."""
    documents: list[Any] = []
    for obj in render.objects():
        configs: list[Any] = []
        documents.append(_tidy(obj, configs))
        for number, config in enumerate(configs):
            if config not in configs[:number]:
                documents.append({CONFIG: config})
    return yaml.dump_all(documents, Dumper=yaml.CSafeDumper, sort_keys=False, width=110, allow_unicode=True)


def _tidy(node: Any, configs: list[Any]) -> Any:
    if isinstance(node, list):
        return [_tidy(item, configs) for item in node]
    if not isinstance(node, dict):
        return node
    tidied = {}
    for key, value in node.items():
        if key == CONFIG:
            configs.append(json.loads(value))
            tidied[key] = "(below)"
        elif key == "expression" and len(value) > 2000:
            tidied[key] = "(from charts/queues/run-policy.yaml)"
        elif key == "helm.sh/chart":
            tidied[key] = re.sub(r"-\d+\.\d+\.\d+.*$", "-0.0.0", value)
        else:
            tidied[key] = _tidy(value, configs)
    return tidied


def main() -> None:
    files = goldens(renders(tool("helm")))
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.iterdir():
        if file.name not in files:
            file.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
