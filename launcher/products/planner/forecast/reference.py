"""Notes about the memory of the reference of DPO, for the choice of tuning.reference."""

from __future__ import annotations

from launcher.config.maxtext import models
from launcher.config.plan import LaunchPlan
from launcher.products.planner.forecast.changes import splits
from launcher.products.planner.forecast.memory_fit import FitResult, gib
from launcher.products.planner.forecast.program import Program


def notes(plan: LaunchPlan, program: Program, verdict: FitResult) -> tuple[str, ...]:
    """Return a sentence about the reference of DPO, and whether the other value of tuning.reference fits."""
    tuning, size = plan.config["tuning"], models.weight_bytes(plan.config["train"])
    if tuning["method"] != "dpo":
        return ()
    if models.adapter(tuning):
        return ("The reference of DPO is the model without its adapters; no second copy of the weights is in memory.",)
    if size is None or program.memory.total is None or not program.mesh:
        return ()
    own = size / splits(program)
    if tuning["reference"] == "memory":
        return (f"The reference of DPO takes {gib(own)} of the memory; tuning.reference: precomputed frees it.",)
    fits = "fits" if program.memory.total + own <= verdict.hbm_capacity else "does not fit"
    return (f"The reference of DPO is precomputed; in memory it would take {gib(own)} more, which {fits}.",)
