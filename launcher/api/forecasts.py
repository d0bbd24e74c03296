"""What will happen on the chips, before anything is submitted. Asks no cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from launcher.api.plans import CHART

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan
    from launcher.forecast.forecast import Forecast
    from launcher.forecast.watch import Watch


def forecast(
    files: Sequence[str],
    sets: Sequence[str] = (),
    *,
    tokens: float | None = None,
    search_seconds: float | None = None,
    timeout_seconds: float = 1800,
    finish: bool = False,
    fresh: bool = False,
    watch: Watch | None = None,
) -> Forecast:
    """Does the run of these values fit, how fast is a step, what does it cost, what would make it fit, or faster.

    Only slice and train are needed in them. The TPU compiler is asked, once for each program (`fresh`: again), in a
    process of its own that may take `timeout_seconds`, up to where memory and schedule are settled (`finish`: up to the
    chip's code); where the run does not fit, changes are compiled for
    `search_seconds` (None: 600) until one does, and where it fits, those that make it faster (None: none). `tokens` is
    what the cost is for, instead of train.steps.

    Raises launcher.config.plan.CheckFailed if a rule is broken, and LauncherError if the compiler is not installed or
    refuses the run.
    """
    from launcher.config.checks.rules import FORECAST_RULES
    from launcher.config.plan import plan_launch
    from launcher.config.values.files import chart_defaults, load
    from launcher.forecast.child import Limits
    from launcher.forecast.compiled import Compiler
    from launcher.forecast.forecast import forecast as make
    from launcher.forecast.watch import Silent

    plan = plan_launch(load(files, sets), chart_defaults(CHART), rules=FORECAST_RULES)
    limits = Limits(seconds=timeout_seconds, finish=finish)
    compiler = Compiler(limits=limits, fresh=fresh, watch=watch or Silent())
    return make(plan, compiler, search_seconds=search_seconds, tokens=tokens)


def refuse_misfits(*plans: LaunchPlan) -> None:
    """Raise launcher.config.plan.CheckFailed if an earlier forecast found that a plan does not fit.

    The error names the change that makes the plan fit, if one is known. Compiles nothing. A forced plan passes."""
    from launcher.forecast.cached import refuse

    refuse(*plans)
