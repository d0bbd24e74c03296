"""The objects and commands of two of GKE's tutorials, as a table of fields and values: parity_seeds.csv.

Each row names its document; `field` is a JSON pointer (RFC 6901), and `value` is JSON. The tutorial with Ray Train has
a RayCluster, a script and the command that submits it. The tutorial with JobSet and Kueue has each JobSet for Autopilot
and for Standard, and the queues with and without preemption.
"""

from __future__ import annotations

import csv
import functools
import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".csv")


def ray_cluster(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the RayCluster, with the variables of envsubst replaced."""
    obj: dict[str, Any] = json.loads(string.Template(json.dumps(_read()["RayCluster"])).substitute(variables))
    return obj


def image_template() -> string.Template:
    """Return the name of the image, with the variables REGION, PROJECT_ID and ARTIFACT_REGISTRY."""
    return string.Template(_read()["image"])


def script_call(name: str) -> dict[str, Any]:
    """Return the keyword arguments of the call of ScalingConfig or RunConfig in the script."""
    arguments: dict[str, Any] = _read()[name]
    return arguments


def maxtext_arguments() -> list[str]:
    """Return what `ray job submit` runs after python: the script, the base config and MaxText's key=value."""
    arguments: list[str] = _read()["arguments"]
    return arguments


def job_sets(variant: str) -> dict[str, dict[str, Any]]:
    """Return the JobSets for Autopilot or Standard, by name."""
    prefix = f"JobSet {variant} "
    return {name.removeprefix(prefix): obj for name, obj in _read().items() if name.startswith(prefix)}


def queues(variant: str) -> dict[str, dict[str, Any]]:
    """Return the objects of Kueue by kind. The variants are "first" and "preemption"."""
    return {name.split()[0]: obj for name, obj in _read().items() if name.endswith(f" {variant}")}


@functools.cache
def _read() -> dict[str, Any]:
    """Return all objects by their name in the table."""
    objects: dict[str, Any] = {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            keys = [key.replace("~1", "/").replace("~0", "~") for key in row["field"].split("/")[1:]]
            parent: dict[str, Any] = objects
            for key in [row["object"], *keys][:-1]:
                parent = parent.setdefault(key, {})
            parent[keys[-1] if keys else row["object"]] = json.loads(row["value"])
    return {name: _lists(obj) for name, obj in objects.items()}


def _lists(value: Any) -> Any:
    """Return the tree with a list for each map whose keys are 0, 1, 2 …"""
    if not isinstance(value, dict):
        return value
    items = {key: _lists(item) for key, item in value.items()}
    return list(items.values()) if items and list(items) == [str(number) for number in range(len(items))] else items
