"""Look up the cached forecast of a plan, without compiling anything."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from launcher.config.checks.problems import ERROR, Problem
from launcher.config.checks.rules import SHAPE_RULES
from launcher.config.plan import LaunchPlan
from launcher.errors import LauncherError
from launcher.products.planner.forecast.cache import Cache, folder
from launcher.products.planner.forecast.changes import Change, changed, changes
from launcher.products.planner.forecast.memory_fit import FitResult, judge
from launcher.products.planner.forecast.program import Program
from launcher.products.planner.forecast.request import installed, of_config
from launcher.products.planner.forecast.speed import Speed, speed_of

RULE = "does-not-fit"


def program(config: Mapping[str, Any]) -> Program | None:
    """Return the program of a run config if it was compiled before. None if not, or if it cannot be compiled here."""
    if not config.get("slice") or (config.get("accelerator") or {}).get("kind") != "tpu":
        return None
    versions = _installed_versions()
    if versions is None:
        return None
    try:
        return Cache(folder()).get(of_config(config, versions))
    except LauncherError:  # there is nothing to compile
        return None


@cache
def _installed_versions() -> Mapping[str, str] | None:
    """Return the versions of the compiler, or None if it is not installed. Reading them takes 4 ms."""
    try:
        return installed()
    except LauncherError:
        return None


def speed(config: Mapping[str, Any]) -> Speed | None:
    """Return the forecast speed of a run with that config, or None if there is no forecast."""
    compiled = program(config)
    return speed_of(compiled, config) if compiled is not None and compiled.fits else None


def problem(plan: LaunchPlan) -> Problem | None:
    """Return the problem that the plan does not fit, with a change that makes it fit, if the cache has both."""
    known = program(plan.config)
    if known is None:
        return None
    judged = judge(known, plan)
    if judged.fits:
        return None
    change = _change(plan, known, judged)
    message = f"{judged.says} "
    message += (
        f"It fits with {change.options}." if change else "launcher forecast searches for a change that makes it fit."
    )
    origin = plan.user.origin(("slice", "topology"))
    file, line = (origin.file, origin.line) if origin else (None, None)
    return Problem(RULE, ERROR, message, file, line, "slice.topology")


def _change(plan: LaunchPlan, known: Program, judged: FitResult) -> Change | None:
    for change in changes(plan, known, judged):
        other = changed(plan, change, SHAPE_RULES)
        compiled = program(other.config) if other is not None else None
        if other is not None and compiled is not None and judge(compiled, other).fits:
            return change
    return None
