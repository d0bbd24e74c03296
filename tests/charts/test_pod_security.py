"""Pod Security Standards, checked by the API server's code: heads are `restricted`, hosts are `baseline`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.charts import schemas
from tests.charts.helm import template
from tests.charts.presets import CHARTS, VALUES, renders
from tests.tools import tool

ROOT = {"multislice-v5e"}
"""Tutorials whose pods run as root, because they install packages into a stock image when they start."""


def levels(templates: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the reasons why each pod template does not meet the levels baseline and restricted; "" if it does."""
    lines = [json.dumps({"metadata": one.get("metadata", {}), "spec": one["spec"]}) for one in templates]
    command = [str(tool("pod-security"))]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(lines)
    return found


def pods(text: str) -> dict[str, dict[str, Any]]:
    """Return the pod templates of rendered manifests by the name of their container."""
    found = [pod for obj in schemas.objects(text) for _, pod in schemas.pod_templates(obj)]
    return {pod["spec"]["containers"][0]["name"]: pod for pod in found}


def test_heads_are_restricted_and_hosts_are_baseline(helm4: Path) -> None:
    named = [(render, name, pod) for render in renders(helm4) for name, pod in pods(render.text).items()]
    for (render, name, _), level in zip(named, levels(pod for *_, pod in named), strict=True):
        where = f"{render.preset} as {render.variant}: {name}"
        assert level["baseline"] == "", where
        if name == "ray-head" or render.label not in ROOT:
            assert level["restricted"] == "", where
    assert {name for _, name, _ in named} == {"ray-head", "ray-worker", "trainer", "record"}


def test_what_is_requested_by_name_is_reported(helm4: Path) -> None:
    file = VALUES / "tutorials" / "llama3-8b-v6e-16.yaml"
    for option, reason in (("hostNetwork", "hostNetwork=true"), ("privileged", "privileged=true")):
        text = template(helm4, CHARTS / "run", [file], "--set", f"security.{option}=true")
        (level,) = levels([pods(text)["ray-worker"]])
        assert reason in level["baseline"]
