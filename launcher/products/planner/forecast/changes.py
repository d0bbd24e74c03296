"""Changes that could make a run fit, in the order in which a practitioner tries them."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from launcher.config import accelerators
from launcher.config.maxtext.models import adapter, checkpoint_bytes
from launcher.config.plan import LaunchPlan, plan_launch
from launcher.config.values.files import chart_defaults
from launcher.config.values.tree import Origin, Values, set_value
from launcher.errors import LauncherError
from launcher.products.planner.forecast.memory_fit import FitResult, chips_of
from launcher.products.planner.forecast.program import Program

# MaxText's defaults (configs/base.yml), for keys that the values do not set.
_BATCH, _REMAT = 12, "full"
# Parameters are split along these axes of the mesh, and copied along the others.
_SPLITS = (
    *("fsdp", "fsdp_transpose", "tensor", "tensor_transpose", "tensor_sequence", "expert", "stage", "pipeline"),
    *("context", "context_usp_ulysses"),  # MaxText's rules split the width of a model's weights over these two
)
# A change whose estimate exceeds the capacity by up to this factor is still compiled.
_DOUBT = 1.15
_LARGER = 3
# If one of these is set, part of the state is not in HBM.
ELSEWHERE = ("optimizer_memory_host_offload", "parameter_memory_host_offload")
_OFFLOADED = {"remat_policy": "custom", "decoder_layer_input": "offload"}


@dataclass(frozen=True)
class Change:
    """A change. `sets` are values by key, as in --set. `says` describes their effect in a few words."""

    sets: Mapping[str, Any]
    says: str

    @property
    def options(self) -> str:
        """The change as command-line options."""
        return " ".join(f"--set {shlex.quote(f'{key}={_as_text(value)}')}" for key, value in self.sets.items())

    def as_json(self) -> dict[str, Any]:
        return {"sets": dict(self.sets), "options": self.options, "says": self.says}


def changes(plan: LaunchPlan, program: Program, verdict: FitResult) -> Iterator[Change]:
    """Yield the changes to try, least loss first. Changes that a bound rules out without a compile are left out."""
    train, tuning = plan.config["train"], plan.config["tuning"]
    # No other change costs as little. The reference of adapters is the model without them.
    if tuning["method"] == "dpo" and tuning["reference"] != "precomputed" and not adapter(tuning):
        yield Change({"tuning.reference": "precomputed"}, "computing the reference of DPO before the first step")
    batches = [batch for batch in _smaller(train) if _may_fit(plan, program, verdict, batch)]
    state = _state(program, plan.config)
    state_fits = state is None or state <= verdict.hbm_capacity
    full = {} if str(train.get("remat_policy") or _REMAT) == "full" else {"train.remat_policy": "full"}
    if state_fits:
        for batch in batches:
            yield Change({"train.per_device_batch_size": batch}, "a smaller batch")
        if full:
            yield Change(full, "recomputing all activations in the backward pass")
            for batch in _smaller(train):
                yield Change(
                    {**full, "train.per_device_batch_size": batch}, "recomputing all activations, and a smaller batch"
                )
        if any(train.get(key) != value for key, value in _OFFLOADED.items()):
            offloaded = {f"train.{key}": value for key, value in _OFFLOADED.items()}
            yield Change(offloaded, "offloading the layers' inputs to the host's memory")
            for batch in _smaller(train)[-1:]:
                yield Change(
                    {**offloaded, "train.per_device_batch_size": batch},
                    "offloading the layers' inputs, and a smaller batch",
                )
    total = _total(plan.config)
    devices = program.devices or chips_of(plan.config)
    room = verdict.hbm_capacity * devices / chips_of(plan.config)  # per chip
    sharded = _all_fsdp(train)
    least = dict.fromkeys(["train.per_device_batch_size"] if _smaller(train) else [], 1) | full
    if sharded and (total is None or total <= room * chips_of(plan.config)):
        yield Change(sharded, "parameters split over all chips")
        if least:
            yield Change({**sharded, **least}, "parameters split over all chips, and less memory for activations")
    for topology in _larger(plan):
        if total is not None and total > room * accelerators.chips(topology) * int(plan.config["slice"]["count"]):
            continue
        grown: dict[str, Any] = {"slice.topology": topology}
        grown |= {"slice.machineType": ""} if plan.config["slice"]["machineType"] else {}
        grown |= sharded or ({"train.ici_fsdp_parallelism": -1} if train.get("ici_fsdp_parallelism") != -1 else {})
        yield Change(grown, "a larger slice")
        if least:
            yield Change({**grown, **least}, "a larger slice, and less memory for activations")


def changed(plan: LaunchPlan, change: Change, rules: Any) -> LaunchPlan | None:
    """Return the plan with the change, or None if a rule forbids it."""
    user = plan.user
    for key, value in change.sets.items():
        user = set_value(user, tuple(key.split(".")), value, Origin("--set", 1))
    try:
        return plan_launch(user, _defaults(), rules=rules)
    except LauncherError:
        return None


@cache
def _defaults() -> Values:
    return chart_defaults("run")


def _smaller(train: Mapping[str, Any]) -> list[int]:
    """Return the whole batches below the present one. They halve, and none of the small ones is skipped."""
    batch = float(train.get("per_device_batch_size") or _BATCH)
    batches = []
    while batch > 1:
        batch = max(1, int(batch) - 1 if batch <= 4 else int(batch // 2))
        batches.append(int(batch))
    return batches


def _total(config: Mapping[str, Any]) -> float | None:
    """Return the bytes of the parameters and their optimizer over all devices, or None if not known."""
    train = config["train"]
    return None if any(train.get(key) for key in ELSEWHERE) else checkpoint_bytes(train, config.get("tuning"))


def _state(program: Program, config: Mapping[str, Any]) -> float | None:
    """Return the minimum bytes of the parameters and their optimizer on a device, or None if not known."""
    if program.memory.arguments is not None:
        return program.memory.arguments
    total = _total(config)
    if total is None or not program.mesh:
        return None
    return total / splits(program)


def splits(program: Program) -> int:
    """Return the number of parts of the parameters on the devices of a program with a mesh."""
    return math.prod(program.mesh.get(axis, 1) for axis in _SPLITS)


def _may_fit(plan: LaunchPlan, program: Program, verdict: FitResult, batch: int) -> bool:
    """Return whether a batch may fit. At best, everything except the state shrinks with the batch."""
    train = plan.config["train"]
    state, used = _state(program, plan.config), program.memory.total
    now = float(train.get("per_device_batch_size") or _BATCH)
    if state is None or used is None or used <= state:
        return True
    return state + (used - state) * batch / now <= verdict.hbm_capacity * _DOUBT


def _all_fsdp(train: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that give every axis within a slice to FSDP, or {} if this is already so."""
    others = {
        f"train.{key}": 1
        for key, value in train.items()
        if key.startswith("ici_") and key.endswith("_parallelism") and key != "ici_fsdp_parallelism" and value != 1
    }
    return {"train.ici_fsdp_parallelism": -1, **others} if others else {}


def _larger(plan: LaunchPlan) -> list[str]:
    """Return the next larger shapes of the same accelerator, in order of their chips."""
    row = plan.values.tree["common"]["accelerators"][plan.config["accelerator"]["name"]]
    now = chips_of(plan.config) // int(plan.config["slice"].get("count") or 1)
    larger = [
        shape for chips, shape in accelerators.best_shapes(row).items() if chips > now and chips & (chips - 1) == 0
    ]
    return larger[:_LARGER]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
