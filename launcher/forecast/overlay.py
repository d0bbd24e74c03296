"""Changed values as a file for -f."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.values.files import dumps

_WIDTH = 118


def overlay(sets: Mapping[str, Any], comments: Sequence[str]) -> str:
    """YAML with these values by their keys, under what is to be known of them."""
    tree: dict[str, Any] = {}
    for path, value in sets.items():
        *above, key = path.split(".")
        at = tree
        for name in above:
            at = at.setdefault(name, {})
        at[key] = value
    lines = [f"# {line}" for comment in comments for line in textwrap.wrap(comment, _WIDTH)]
    return "\n".join(lines) + "\n" + dumps(tree)
