"""pyproject.toml declares every distribution that the launcher and the trainer import."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


# trainer/serving also runs in an image with vLLM (docker/serve/vllm.Dockerfile).
SERVING = [*EXTRAS["serve"], "vllm"]


def declared(*groups: list[str]) -> set[str]:
    return {
        re.sub(r"[-_.]+", "-", match[0]).lower()
        for group in groups
        for requirement in group
        if (match := re.match(r"[A-Za-z0-9._-]+", requirement))
    }


def imported(folder: str) -> set[str]:
    names = set()
    for path in (CHECKOUT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"launcher", "trainer"}


@pytest.mark.parametrize(
    ("folder", "groups"),
    [
        ("launcher", [PROJECT["dependencies"], EXTRAS["fleet"], EXTRAS["report"], EXTRAS["train"]]),
        ("trainer", [PROJECT["dependencies"], EXTRAS["train"], EXTRAS["generate"], EXTRAS["eval"], SERVING]),
    ],
)
def test_every_import_is_declared(folder: str, groups: list[list[str]]) -> None:
    distributions = packages_distributions()
    undeclared = {
        name
        for name in imported(folder)
        if not {re.sub(r"[-_.]+", "-", each).lower() for each in distributions.get(name, [name])} & declared(*groups)
    }
    assert undeclared == set()
