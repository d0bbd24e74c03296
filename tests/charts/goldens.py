"""`make goldens`: what the presets render, written down small enough to be reviewed as code.

Tutorials and queues in full, and a run that no preset changes; of clusters, models and slices what differs from that
run. The run config, which travels in an annotation as one line of JSON, is shown once, as YAML, below the object that
carries it. Chart versions are v0.0.0, so that releases do not churn the files. A golden proves sameness, not
correctness: test_presets.py asks the schemas.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.charts.presets import Render, renders
from tests.tools import tool

FOLDER = Path(__file__).with_name("goldens")
FULL = ("base", "tutorials", "queues")
DIFFERENCES = {"clusters": ("ray-job", "job-set", "ray-cluster"), "models": ("ray-job",), "slices": ("ray-job",)}
"""Groups that are told as differences, and in which variants; models and slices change the same fields in each."""
CONFIG = "slipway.dev/run-config"


def goldens(found: Iterable[Render]) -> dict[str, str]:
    """The text of each golden file, by its name."""
    shown = {(render.preset, render.variant): (render, readable(render)) for render in found}
    files: dict[str, str] = {}
    for (preset, variant), (render, text) in shown.items():
        if render.group in FULL:
            name = "base" if render.group == "base" else preset.replace("/", "-")
            files[f"{name}.yaml" if render.group == "queues" else f"{name}.{variant}.yaml"] = text
        elif variant in DIFFERENCES.get(render.group, ()):
            _, base = shown["base", variant]
            lines = difflib.unified_diff(base.splitlines(), text.splitlines(), n=0, lineterm="")
            told = [line if not line.startswith("@@") else "@@" for line in list(lines)[2:]]
            # Slices are many: a file for each accelerator.
            name = preset.partition("-")[0].replace("/", "-") if render.group == "slices" else render.group
            files.setdefault(f"{name}.diff", "")
            files[f"{name}.diff"] += "\n".join([f"=== {preset} as {variant}", *told, ""])
    return files


def readable(render: Render) -> str:
    """A render as YAML that people can read and compare."""
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
    made = {}
    for key, value in node.items():
        if key == CONFIG:
            configs.append(json.loads(value))
            made[key] = "(below)"
        elif key == "helm.sh/chart":
            made[key] = re.sub(r"-\d+\.\d+\.\d+.*$", "-0.0.0", value)
        else:
            made[key] = _tidy(value, configs)
    return made


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
