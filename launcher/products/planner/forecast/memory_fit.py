"""Whether a compiled step fits into the chips' HBM, and whether what it offloads fits into the hosts' memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.config.maxtext import models
from launcher.config.plan import LaunchPlan
from launcher.errors import LauncherError
from launcher.k8s.objects import quantity
from launcher.products.planner.forecast.program import Program

GIB = 1 << 30


@dataclass(frozen=True)
class FitResult:
    """The memory that a step needs, and whether it fits.

    `hbm` is bytes of the `hbm_capacity` of one device, `host` is bytes of the `host_capacity` of one host. None is not
    known: the table lacks the host's machine type, or the compiler did not report the size. `says` is a sentence.
    `margin` is the bytes of HBM that are left, or less than 0 if HBM is too small.
    """

    fits: bool
    hbm: int | None
    hbm_capacity: int
    host: int
    host_capacity: int | None
    says: str

    @property
    def margin(self) -> int | None:
        return None if self.hbm is None else self.hbm_capacity - self.hbm


def judge(program: Program, plan: LaunchPlan) -> FitResult:
    """Judge whether the plan's program fits."""
    row = plan.config["accelerator"]
    per_chip = devices_per_chip(program, plan.config)
    capacity = program.memory.capacity or int(row["hbmGiB"] * GIB / per_chip)
    used = program.memory.total
    host = program.memory.host.total * per_chip * row["chipsPerHost"]
    room, whose = _host_memory(plan)
    device = "a chip" if per_chip == 1 else f"a device (a chip has {per_chip})"
    fits = program.fits and (used is None or used <= capacity)
    loaded = frozen_bytes(plan.config) or 0
    loaded /= chips_of(plan.config) * per_chip
    if fits and loaded > capacity:  # only those of QLoRA, which a step has in 4 bits
        fits = False
        says = (
            f"It does not fit: the weights take {gib(loaded)} of {device} before quantization, and it has "
            f"{gib(capacity)}."
        )
    elif not fits:
        needs = f"{gib(used)} of HBM" if used else "more HBM than is available"
        says = f"It does not fit: a step needs {needs}, and {device} has {gib(capacity)}."
    elif room is not None and host > room:
        fits = False
        says = f"It does not fit: the offloaded data takes {gib(host)} of a host's memory, and {whose} is {gib(room)}."
    else:
        left = f", {1 - used / capacity:.0%} of it left" if used is not None else ""
        says = f"It fits: {gib(used)} of {device}'s {gib(capacity)}{left}."
    return FitResult(fits, used, capacity, host, room, says)


def devices_per_chip(program: Program, config: Mapping[str, Any]) -> int:
    """Return the number of JAX devices on one chip: two on Ironwood, one on the others."""
    chips = chips_of(config)
    return max(1, program.devices // chips) if program.devices else 1


def chips_of(config: Mapping[str, Any]) -> int:
    """Return the chips of the whole run, over all slices."""
    return int(config["accelerator"]["chips"]) * int(config["slice"].get("count") or 1)


def frozen_bytes(config: Mapping[str, Any]) -> float | None:
    """Return the bytes of the weights below adapters when they are loaded, over all devices; None without adapters."""
    train = config["train"]
    if not models.adapter(config["tuning"]):
        return None
    # The trainer's default is dtype, and MaxText's default of that is bfloat16.
    return models.weight_bytes({"weight_dtype": train.get("dtype") or "bfloat16", **train})


def _host_memory(plan: LaunchPlan) -> tuple[int | None, str]:
    """Return the bytes that the trainer may use on a host, and the source of that limit: the pod or the machine."""
    row = plan.config["accelerator"]
    table = plan.values.tree["common"]["accelerators"][row["name"]]
    machine = (table.get("hostMemoryGiB") or {}).get(row["machineType"])
    text = str((plan.config.get("worker") or {}).get("memory") or "")
    try:
        limit = int(quantity(text)) if text else None
    except ValueError:
        raise LauncherError(f'worker.memory: "{text}" is not a valid amount of memory; write it like 16Gi.') from None
    if limit is not None and (machine is None or limit < machine * GIB):
        return limit, "worker.memory"
    return (int(machine * GIB) if machine else None), f"the memory of {row['machineType']}"


def gib(size: float | None) -> str:
    """Format bytes for people: "15.9 GiB"."""
    if size is None:
        return "an unknown amount"
    return f"{size / GIB:.1f} GiB" if abs(size) >= GIB / 10 else f"{size / (1 << 20):.1f} MiB"
