"""Forecast runs: memory, speed and cost on the chips, before a submit and without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.api._values import Files, Sets, load
from launcher.api.plans import CHART
from launcher.products.planner.forecast.compile_progress import Silent

if TYPE_CHECKING:
    from launcher.products.planner.forecast.compile_progress import Watch
    from launcher.products.planner.forecast.forecast import Forecast


def forecast(
    files: Files,
    sets: Sets = (),
    *,
    tokens: float | None = None,
    search_seconds: float | None = None,
    timeout_seconds: float = 1800,
    finish: bool = False,
    fresh: bool = False,
    watch: Watch | None = None,
) -> Forecast:
    """Forecast the run of these values: whether it fits, its speed and cost, and changes that make it fit or faster.

    The values need to set only slice and train. The TPU compiler compiles each program once and caches the result
    (`fresh` compiles it again). It runs in a separate process for at most `timeout_seconds`, up to the point where
    memory and schedule are settled, or with `finish` down to the chip's code. If the run does not fit, changes are
    compiled for `search_seconds` (None: 600) until one fits. If it fits, changes that make it faster are compiled for
    `search_seconds` (None: none). The cost is for `tokens` if given, otherwise for train.steps. Each alternative in
    slice.any has a forecast of its own.

    Raises launcher.config.plan.CheckFailed if a rule is violated, and LauncherError if the compiler is not installed or
    rejects the run.
    """
    from launcher.config.checks.rules import FORECAST_RULES
    from launcher.config.plan import plan_launch
    from launcher.config.values.files import chart_defaults
    from launcher.products.planner.forecast.child import Limits
    from launcher.products.planner.forecast.compiled import Compiler
    from launcher.products.planner.forecast.forecast import forecast_alternatives

    plan = plan_launch(load(files, sets), chart_defaults(CHART), rules=FORECAST_RULES)
    limits = Limits(seconds=timeout_seconds, finish=finish)
    compiler = Compiler(limits=limits, fresh=fresh, watch=watch or Silent())
    return forecast_alternatives(plan, compiler, search_seconds=search_seconds, tokens=tokens)
