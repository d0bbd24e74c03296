"""Each key of a label or an annotation is written once in the launcher."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import launcher
from launcher.k8s import label_keys

KEYS = {value for name, value in vars(label_keys).items() if name.isupper()}


def test_no_other_module_spells_out_a_key() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    root = Path(launcher.__file__).parent
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in KEYS:
                found[node.value].append(path.relative_to(root).as_posix())
    assert found == {key: ["k8s/label_keys.py"] for key in KEYS}
