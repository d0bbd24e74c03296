"""The speed of a compiled step: its seconds, and the rates that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.products.planner.forecast import memory_fit
from launcher.products.planner.forecast.program import Program
from launcher.products.planner.forecast.step_time import predict


@dataclass(frozen=True)
class Speed:
    """The speed of one step. `parts` are seconds by what they are spent on. `hidden` are seconds of overlapped work
    that nothing waits for. The rates are per device, or None if not known."""

    step_seconds: float
    parts: Mapping[str, float]
    tokens_per_second_per_device: float | None
    tflops_per_second_per_device: float | None
    mfu: float | None
    notes: tuple[str, ...] = ()
    hidden: Mapping[str, float] = field(default_factory=dict)


def speed_of(program: Program, config: Mapping[str, Any]) -> Speed | None:
    """Return the speed of a step that fits, or None if the accelerator's speeds are not known."""

    devices_per_chip = memory_fit.devices_per_chip(program, config)
    step = predict(program, config["accelerator"], devices_per_chip)
    if step is None:
        return None
    model = program.model
    flops = model.flops_per_step_per_device
    tflops = flops / step.seconds / 1e12 if flops else None
    peak = float(config["accelerator"].get("peakTflops") or 0) / devices_per_chip
    tokens = model.tokens_per_step_per_device
    notes = tuple(
        f"The kernel {name} is not known: its time includes the data that it moves, but not its computation."
        for name in step.unknown
    )
    return Speed(
        step_seconds=step.seconds,
        parts=step.parts,
        tokens_per_second_per_device=tokens / step.seconds if tokens else None,
        tflops_per_second_per_device=tflops,
        mfu=tflops / peak if tflops and peak else None,
        notes=notes,
        hidden=step.hidden,
    )
