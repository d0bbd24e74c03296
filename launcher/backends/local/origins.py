"""The origin of each value of a run, for later use by launcher report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from launcher import paths
from launcher.config.values.tree import dotted

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan

_ELSEWHERE = ("common", "global", "serve")


def origins(plan: LaunchPlan, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the origin of every key of `config`, by its dotted key: "mine.yaml:4", "--set 1".

    The origin of a chart's default is its path in the folder of charts. If a value in `config` differs from the plan,
    it was changed for this machine (an absolute path, the folder of runs).
    """
    charts = str(paths.charts_dir().parent)
    found = {}
    for path, value, origin in plan.values.leaves():
        if path[0] in _ELSEWHERE:
            continue
        text = str(origin).removeprefix(charts).lstrip("/") if origin.file.startswith(charts) else str(origin)
        changed = _at(config, path) != value
        found[dotted(path)] = f"{text}, made absolute for this machine" if changed else text
    return found


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree
