"""Describes a slice to the TPU compiler.

MaxText has a map of known products (v6e-16, v5p-8 …). The rule here gives the same result for each of them, which a
test verifies, and also covers the shapes and machines that are not in the map.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.aot.errors import AotError

# GKE's label of the chip -> the compiler's name of the generation, its name for the use of a chip's cores, and the
# devices per chip: a v4 or v5p chip is one device (megacore), an Ironwood chip is two.
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
    """One slice.

    name          in the compiler's notation, for example v6e:4x4
    host_bounds   chips of a host along each axis
    wrap          whether the links of each axis form a ring
    """

    name: str
    chip_config: str
    host_bounds: tuple[int, int, int]
    wrap: tuple[bool, bool, bool]
    devices: int
    devices_per_host: int


def describe(accelerator: Mapping[str, Any]) -> Topology:
    """Return the slice of a run config's `accelerator`. Raises AotError (topology)."""
    label, shape = str(accelerator.get("label") or ""), str(accelerator.get("topology") or "")
    if accelerator.get("kind") != "tpu":
        raise AotError(
            "topology",
            f"{accelerator.get('name')} is not a TPU; only programs for TPUs can be compiled without the chip.",
        )
    if label not in _GENERATIONS:
        raise AotError(
            "topology",
            f"The TPU compiler does not support the accelerator {accelerator.get('name')} (label {label or 'empty'}); "
            f"it supports the labels {', '.join(_GENERATIONS)}.",
        )
    generation, chip_config, devices_per_chip = _GENERATIONS[label]
    sides = [int(side) for side in shape.split("x")] if all(part.isdigit() for part in shape.split("x")) else []
    flat = generation in ("v5e", "v6e")
    per_host = int(accelerator.get("chipsPerHost") or 0)
    if len(sides) != (2 if flat else 3) or per_host not in _HOSTS:
        raise AotError(
            "topology",
            f"The TPU compiler cannot describe {accelerator.get('name')} {shape or '(no topology)'} with {per_host} "
            f"chips per host: a {generation} slice has {2 if flat else 3} sides, and a host has 1, 4 or 8 chips.",
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
    """Return which axes are rings.

    On generations with two axes, a side of 16 chips is a ring. On the others, all axes are rings if the slice consists
    of whole cubes of 4x4x4 chips, whose faces are connected by optical switches.
    """
    if len(sides) == 2:
        return (sides[0] == 16, sides[1] == 16, False)
    cubes = all(side % 4 == 0 for side in sides)
    return (cubes, cubes, cubes)
