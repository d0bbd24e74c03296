"""The origin of each value of a run, for later use by launcher report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from launcher import paths
from launcher.config.checks.schema import value_at
from launcher.config.values.tree import dotted

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan


def origins(plan: LaunchPlan, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the origin of every key of `config`, by its dotted key: "mine.yaml:4", "--set 1".

    The origin of a chart's default is its path in the folder of charts. If a value in `config` differs from the plan,
    it was changed for this machine (an absolute path, the folder of runs).
    """
    charts = str(paths.charts_dir().parent)
    by_key = {}
    for path, value, origin in plan.values.leaves():
        if (kept := value_at(config, path)) is None and value is not None:  # of the library chart, or of other charts
            continue
        text = str(origin).removeprefix(charts).lstrip("/") if origin.file.startswith(charts) else str(origin)
        by_key[dotted(path)] = text if kept == value else f"{text}, made absolute for this machine"
    return by_key
