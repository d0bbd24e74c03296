"""How a slice is described to the TPU compiler.

MaxText has a map of the products it knows (v6e-16, v5p-8 …); the rule here gives what that map says for every one of
them (a test compares), and holds for the shapes and machines that the map leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.aot.errors import AotError

# GKE's label of the chip -> the compiler's name of the generation and its name of how a chip's cores are used:
# a v4 or v5p chip is one device (megacore), an Ironwood chip is two.
_GENERATIONS = {
    "tpu-v4-podslice": ("v4", "megacore", 1),
    "tpu-v5-lite-podslice": ("v5e", "default", 1),
    "tpu-v5p-slice": ("v5", "megacore", 1),
    "tpu-v6e-slice": ("v6e", "default", 1),
    "tpu7x": ("tpu7x", "default", 2),
}
_HOSTS = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}


@dataclass(frozen=True)
class Topology:
    """One slice: `name` as the compiler spells it (v6e:4x4), chips of a host and links that close a ring by axis."""

    name: str
    chip_config: str
    host_bounds: tuple[int, int, int]
    wrap: tuple[bool, bool, bool]
    devices: int
    devices_per_host: int


def describe(accelerator: Mapping[str, Any]) -> Topology:
    """The slice of a run config's `accelerator`; raises AotError (topology)."""
    label, shape = str(accelerator.get("label") or ""), str(accelerator.get("topology") or "")
    if accelerator.get("kind") != "tpu":
        raise AotError(
            "topology", f"{accelerator.get('name')} is no TPU; only TPUs can be compiled for without having one."
        )
    if label not in _GENERATIONS:
        raise AotError(
            "topology",
            f"The TPU compiler does not know the accelerator {accelerator.get('name')} (label {label or 'empty'}); "
            f"it knows the labels {', '.join(_GENERATIONS)}.",
        )
    generation, chip_config, devices_per_chip = _GENERATIONS[label]
    sides = [int(side) for side in shape.split("x")] if all(part.isdigit() for part in shape.split("x")) else []
    flat = generation in ("v5e", "v6e")
    per_host = int(accelerator.get("chipsPerHost") or 0)
    if len(sides) != (2 if flat else 3) or per_host not in _HOSTS:
        raise AotError(
            "topology",
            f"The TPU compiler cannot describe {accelerator.get('name')} {shape or '(no topology)'} with {per_host} "
            f"chips a host: a {generation} slice has {2 if flat else 3} sides, and a host 1, 4 or 8 chips.",
        )
    return Topology(
        name=f"{generation}:{shape}",
        chip_config=chip_config,
        host_bounds=_HOSTS[per_host],
        wrap=_wrap(sides),
        devices=math.prod(sides) * devices_per_chip,
        devices_per_host=per_host * devices_per_chip,
    )


def _wrap(sides: list[int]) -> tuple[bool, bool, bool]:
    """Which axes are rings: on flat generations a side of all 16 chips, on the others all of them where the slice is
    made of whole cubes of 4x4x4 (their faces are joined by optical switches)."""
    if len(sides) == 2:
        return (sides[0] == 16, sides[1] == 16, False)
    cubes = all(side % 4 == 0 for side in sides)
    return (cubes, cubes, cubes)
