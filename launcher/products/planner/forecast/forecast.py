"""The result of `launcher forecast`: whether a run fits, how fast it is, what it costs, and what to change."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from launcher import formatting
from launcher.config.alternatives import members
from launcher.config.checks.rules import SHAPE_RULES
from launcher.config.maxtext import models
from launcher.config.plan import LaunchPlan
from launcher.config.suggest import join_or
from launcher.errors import LauncherError
from launcher.products.planner.forecast import memory_fit, reference
from launcher.products.planner.forecast.changes import ELSEWHERE, Change, changed, changes
from launcher.products.planner.forecast.child import CompileTimeout
from launcher.products.planner.forecast.compiled import Compiler, describe
from launcher.products.planner.forecast.cost import Cost, cost
from launcher.products.planner.forecast.improvement import Improvement
from launcher.products.planner.forecast.memory_fit import FitResult
from launcher.products.planner.forecast.program import Program
from launcher.products.planner.forecast.search import search
from launcher.products.planner.forecast.speed import Speed, speed_of

__all__ = ["SEARCH_SECONDS", "Forecast", "Speed", "forecast", "forecast_alternatives", "speed_of"]

SEARCH_SECONDS = 600.0
"""Time limit of the search for changes that make a run fit, if the user sets none."""


@dataclass(frozen=True)
class Forecast:
    """A forecast. `fits` is None if it cannot be determined (GPUs and CPUs). `says` is the verdict as a sentence.

    If the run does not fit, `change` is a change that was compiled and fits. If it fits and faster configs were
    requested, `better` are configs that were compiled and are faster, best first, and `searched` describes what was
    tried. `suggestions` are sentences. `notes` are further remarks. `program` is None if nothing was compiled.

    `others` are the forecasts of the other alternatives in slice.any, in their order; `alternative` describes this one.
    """

    what: str
    fits: bool | None
    says: str
    chips: int
    program: Program | None = None
    verdict: FitResult | None = None
    speed: Speed | None = None
    cost: Cost | None = None
    change: Change | None = None
    better: tuple[Improvement, ...] = ()
    searched: str = ""
    suggestions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cached: bool = False
    alternative: str = ""
    others: tuple[Forecast, ...] = ()

    def as_json(self) -> dict[str, Any]:
        memory = self.program.memory if self.program else None
        verdict, speed = self.verdict, self.speed
        keys = ("arguments", "outputs", "temporaries", "aliased", "code", "total")
        return {
            "fits": self.fits,
            "says": self.says,
            "hbm_bytes": {key: getattr(memory, key) for key in keys} | {"capacity": verdict and verdict.hbm_capacity}
            if memory
            else None,
            "hbm_margin_bytes": verdict.margin if verdict else None,
            "host_bytes": {"total": verdict.host, "capacity": verdict.host_capacity} if verdict else None,
            "buffers": [asdict(one) for one in self.program.buffers] if self.program else [],
            "step_seconds": speed.step_seconds if speed else None,
            "parts": dict(speed.parts) if speed else {},
            "tokens_per_second_per_device": speed.tokens_per_second_per_device if speed else None,
            "tflops_per_second_per_device": speed.tflops_per_second_per_device if speed else None,
            "mfu": speed.mfu if speed else None,
            "cost": asdict(self.cost) if self.cost else None,
            "suggestions": list(self.suggestions),
            "change": self.change.as_json() if self.change else None,
            "better": [one.as_json() for one in self.better],
            "searched": self.searched,
            "notes": list(self.notes),
            "chips": self.chips,
            "devices": self.program.devices if self.program else None,
            "mesh": dict(self.program.mesh) if self.program else {},
            "versions": dict(self.program.versions) if self.program else {},
            "finished": self.program.finished if self.program else None,
            "compile_seconds": self.program.seconds if self.program else None,
            "cached": self.cached,
            "alternative": self.alternative,
            "others": [one.as_json() for one in self.others],
        }


def forecast_alternatives(
    plan: LaunchPlan, compiler: Compiler, *, search_seconds: float | None = None, tokens: float | None = None
) -> Forecast:
    """Return the forecast of the plan, with those of its other alternatives; see `forecast`.

    An alternative that cannot be forecast has the reason in `says`.
    """
    plans = [member for member_plan in (plan, *plan.others) for member in _members(member_plan)]
    if len(plans) == 1:
        return forecast(plan, compiler, search_seconds=search_seconds, tokens=tokens)
    made = []
    for says, member_plan in plans:
        try:
            outcome = forecast(member_plan, compiler, search_seconds=search_seconds, tokens=tokens)
        except LauncherError as error:
            outcome = Forecast(describe(member_plan), None, error.message, memory_fit.chips_of(member_plan.config))
        made.append(replace(outcome, alternative=says))
    return replace(made[0], others=tuple(made[1:]))


def _members(plan: LaunchPlan) -> list[tuple[str, LaunchPlan]]:
    """Return the plan, or one for each alternative that shares its run: the price depends on the provisioning."""
    pairs = [
        (says, replace(plan, values=values, config={**plan.config, "slice": values.tree["slice"]}))
        for says, values in members(plan.values)
    ]
    return pairs or [(plan.alternative.says if plan.alternative else "", plan)]


def forecast(
    plan: LaunchPlan, compiler: Compiler, *, search_seconds: float | None = None, tokens: float | None = None
) -> Forecast:
    """Return the forecast for the plan.

    If the plan does not fit, compile changes for `search_seconds` (None: SEARCH_SECONDS) until one fits. If it fits,
    compile configs that may be faster for the same time (None: skip this). The cost is for `tokens`, if set, instead of
    train.steps. Raises LauncherError if no program can be compiled.
    """
    if plan.config["accelerator"]["kind"] != "tpu":
        return _without_compiler(plan)
    program, cached = compiler.program(plan)
    verdict = memory_fit.judge(program, plan)
    result = Forecast(
        what=describe(plan),
        fits=verdict.fits,
        says=verdict.says,
        chips=memory_fit.chips_of(plan.config),
        program=program,
        verdict=verdict,
        cached=cached,
        notes=reference.notes(plan, program, verdict),
    )
    if not verdict.fits:
        seconds = SEARCH_SECONDS if search_seconds is None else search_seconds
        change, sentences = _search(plan, program, verdict, compiler, seconds)
        return replace(result, change=change, suggestions=tuple(sentences))
    speed = speed_of(program, plan.config)
    if speed is None:
        row = plan.config["accelerator"]
        unknown = [f"speeds.{key}" for key, value in (row.get("speeds") or {}).items() if not value]
        unknown = unknown or (["peakTflops"] if row.get("speeds") else ["speeds"])
        keys = join_or([f"common.accelerators.{row['name']}.{key}" for key in unknown], "and")
        return replace(result, notes=(*result.notes, f"The step time is unknown: set {keys}; 0 means unknown."))
    devices = program.devices or memory_fit.chips_of(plan.config)
    per_step = program.model.tokens_per_step_per_device
    spent = cost(
        plan.values.tree,
        step_seconds=speed.step_seconds,
        chips=memory_fit.chips_of(plan.config),
        tokens_per_step=per_step * devices if per_step else None,
        tokens=tokens,
        given=plan.user.origins.keys(),
    )
    no_steps = () if spent else ("The time and the cost are unknown: set train.steps, or use --tokens.",)
    result = replace(result, speed=speed, cost=spent, notes=(*result.notes, *speed.notes, *no_steps))
    if search_seconds:
        looked = search(plan, program, verdict, compiler, search_seconds)
        result = replace(result, better=looked.better, searched=looked.says)
    return result


def _search(
    plan: LaunchPlan, program: Program, verdict: FitResult, compiler: Compiler, seconds: float
) -> tuple[Change | None, list[str]]:
    """Return a change that fits according to the compiler, if any, and sentences on what was tried."""
    deadline = time.monotonic() + seconds
    tried = 0
    for change in changes(plan, program, verdict):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        other = changed(plan, change, SHAPE_RULES)
        if other is None:
            continue
        try:
            compiled, _ = compiler.program(other, seconds=left, what=f"{describe(other)} with {change.options}")
        except CompileTimeout as error:  # the limit of the search or of one compile
            if time.monotonic() >= deadline:
                break
            compiler.watch.print_line(f"{change.options}: {error.message}")
            continue
        except LauncherError as error:  # MaxText or the compiler refuses this change
            compiler.watch.print_line(f"{change.options}: {error.message}")
            continue
        tried += 1
        judged = memory_fit.judge(compiled, other)
        if judged.fits:
            return change, [f"Add {change.options} ({change.says}). {judged.says}"]
        compiler.watch.print_line(f"{change.options}: {judged.says}")
    else:
        return None, ["No change that Slipway tries makes it fit; use an accelerator with more memory."]
    if not tried:
        return None, ["To search for a change that makes it fit: --search MINUTES."]
    count = f"{tried} change was" if tried == 1 else f"{tried} changes were"
    return None, [f"{count} compiled in {formatting.duration(seconds)}, and none fits; --search MINUTES tries more."]


def _without_compiler(plan: LaunchPlan) -> Forecast:
    """Return the forecast for GPUs and CPUs: the results of arithmetic, without numbers from the compiler."""
    row = plan.config["accelerator"]
    chips = memory_fit.chips_of(plan.config)
    train = plan.config["train"]
    offloaded = any(train.get(key) for key in ELSEWHERE)
    count, state = models.parameters(train), None if offloaded else models.checkpoint_bytes(train)
    what = "and their optimizer"
    if adapter := models.adapter(plan.config["tuning"]):
        state = None if offloaded else memory_fit.frozen_bytes(plan.config)
        what = "before quantization" if adapter == "qlora" else "without their adapters"
    kind, unit = ("GPUs", "GPU") if row["kind"] == "gpu" else ("CPUs", "host")
    says = f"A forecast is not possible for {kind}: only the TPU compiler works without the chips."
    fits: bool | None = None
    notes: tuple[str, ...] = ()
    if count is not None and state is not None:
        least = state / chips
        notes = (
            f"{count:,} parameters {what} take {memory_fit.gib(state)}, at least {memory_fit.gib(least)} "
            f"on each {unit}. The memory of the activations, the step time and the cost are unknown.",
        )
        if row["hbmGiB"] and least > row["hbmGiB"] * memory_fit.GIB:
            fits = False
            says = (
                f"It does not fit: the parameters {what} alone take {memory_fit.gib(least)} on each "
                f"{unit}, which has {row['hbmGiB']} GiB."
            )
    hint = "A short run measures the rest: --set train.steps=10, then launcher report."
    if fits is False:
        hint = f"Use more or larger {kind}: slice.accelerator, slice.hosts, slice.count."
    return Forecast(describe(plan), fits, says, chips, suggestions=(hint,), notes=notes)
