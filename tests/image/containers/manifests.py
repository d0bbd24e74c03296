"""Helpers that read values of Kubernetes manifests."""

from __future__ import annotations

import re
from typing import Any

_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}


def amount(quantity: str | float) -> float:
    """The value of a quantity, such as 500m or 2Gi."""
    found = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(quantity))
    assert found, quantity
    return float(found[1]) * _UNITS[found[2]]


def field_of(manifest: dict[str, Any], path: str) -> str:
    """The value of a fieldRef in a pod, such as metadata.name or metadata.labels['…']; "" for a missing label, as the
    kubelet has it."""
    found = re.fullmatch(r"metadata\.(\w+)(?:\['([^']+)'\])?", path)
    assert found, path
    value = manifest["metadata"][found[1]]
    return str(value.get(found[2], "") if found[2] else value)


def expand(text: str, values: dict[str, str]) -> str:
    """Expand $(NAME) in a command or a variable. $$ becomes $, and unknown names are not changed."""

    def replace(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else values.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", replace, text)
