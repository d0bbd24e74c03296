"""The mesh that MaxText makes of `train` on given slices, and what it shares out over which of its axes.

Pure arithmetic, as maxtext.utils.max_utils.fill_unspecified_mesh_axes and the checks in maxtext.configs.types do it.
"Devices" are JAX's: one a chip, but for Ironwood, whose chips are two devices each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config.accelerators import Slice
from launcher.config.maxtext.models import row_of, settings, table

_DEVICES_PER_CHIP = {"tpu7x": 2}
# The key of an axis where it is not the axis' own name.
_KEY_OF = {"stage": "pipeline", "model": "tensor"}
_BATCH = ("activation_batch", "activation_embed_and_logits_batch")


class MeshError(ValueError):
    """There is no such mesh.

    `why` is "one-slice" (axes between slices, and only one slice), "odd" (an axis of 0, or below -1), "open" (more
    than one -1), or "product" (the sizes do not make the devices, or the slices). `keys` are MaxText's keys that make
    it so, `level` is ici or dcn, `product` spells the sizes that are given.
    """

    def __init__(self, why: str, keys: Sequence[str], level: str, product: str = "") -> None:
        super().__init__(f"{why}: {', '.join(keys)} {product}".rstrip())
        self.why, self.keys, self.level, self.product = why, list(keys), level, product


@dataclass(frozen=True)
class Mesh:
    """Sizes of the mesh's axes: `ici` within a slice (their product is its devices), `dcn` between slices."""

    ici: Mapping[str, int]
    dcn: Mapping[str, int]

    @property
    def sizes(self) -> dict[str, int]:
        """Devices along each axis, over all slices."""
        return {axis: size * self.dcn.get(axis, 1) for axis, size in self.ici.items()}

    @property
    def devices(self) -> int:
        """All devices, over all slices."""
        return math.prod(self.sizes.values())

    def over(self, axes: Iterable[str]) -> int:
        """How many parts there are of what is shared out over these axes; an axis that the mesh lacks is one."""
        sizes = self.sizes
        return math.prod(sizes.get(axis, 1) for axis in axes)


def devices_per_slice(slice_: Slice) -> int:
    """The devices that JAX sees of one slice."""
    return slice_.chips * _DEVICES_PER_CHIP.get(slice_.accelerator, 1)


def key_of(axis: str, level: str) -> str:
    """MaxText's key for an axis of the mesh; `level` is ici or dcn."""
    return f"{level}_{_KEY_OF.get(axis, axis)}_parallelism"


def mesh_axes(train: Mapping[str, Any]) -> list[str]:
    """The axes of the mesh, in MaxText's order."""
    keys = settings(train)
    custom = table()["custom_meshes"].get(keys["custom_mesh_and_rule"] or "")
    axes: list[str] = custom or keys.get("mesh_axes") or table()["mesh_axes"]
    return axes


def mesh(train: Mapping[str, Any], *, slices: int, devices: int) -> Mesh:
    """The mesh over `slices` slices of `devices` devices each, with the -1 filled in as MaxText does.

    Raises MeshError where MaxText refuses.
    """
    keys, axes = settings(train), mesh_axes(train)
    ici = {axis: int(keys.get(key_of(axis, "ici"), 1)) for axis in axes}
    dcn = {axis: int(keys.get(key_of(axis, "dcn"), 1)) for axis in axes}
    if slices == 1:
        # MaxText looks at all keys but diloco's, whether the mesh has the axis or not.
        wanted = [
            key
            for key, size in keys.items()
            if re.fullmatch(r"dcn_(?!diloco)\w+_parallelism", key) and abs(int(size)) > 1
        ]
        if wanted:
            raise MeshError("one-slice", wanted, "dcn")
        return Mesh(_filled(ici, devices, "ici"), dict.fromkeys(axes, 1))
    if dcn.get("diloco") == -1:
        # MaxText fills in this one before any other.
        rest = math.prod(size for size in dcn.values() if size != -1)
        if rest < 1 or slices % rest:
            raise MeshError("product", [key_of("diloco", "dcn")], "dcn", str(rest))
        dcn["diloco"] = slices // rest
    return Mesh(_filled(ici, devices, "ici"), _filled(dcn, slices, "dcn"))


def _filled(sizes: Mapping[str, int], target: int, level: str) -> dict[str, int]:
    """The sizes with their -1 filled in, so that their product is `target`. Raises MeshError."""
    odd = [axis for axis, size in sizes.items() if size < 1 and size != -1]
    open_ = [axis for axis, size in sizes.items() if size == -1]
    fixed = [axis for axis, size in sizes.items() if size > 1]
    for why, axes in (("odd", odd), ("open", open_ if len(open_) > 1 else [])):
        if axes:
            raise MeshError(why, [key_of(axis, level) for axis in axes], level)
    product = math.prod(sizes[axis] for axis in fixed)
    if open_ and target % product == 0:
        return {**sizes, open_[0]: target // product}
    if product == target:
        return dict(sizes)
    factors = " x ".join(str(sizes[axis]) for axis in fixed)
    spelled = f"{factors} = {product}" if len(fixed) > 1 else str(product)
    raise MeshError("product", [key_of(axis, level) for axis in fixed], level, spelled)


# --- What is shared out over it -----------------------------------------------------------------------------------


def rules(train: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]] | None:
    """MaxText's logical axis rules in their order; None where `train` brings its own, which are not read here."""
    keys = settings(train)
    if train.get("logical_axis_rules") or train.get("mesh_axes") or keys["custom_mesh_and_rule"]:
        return None
    own = row_of(train).get("rules", [])
    replaced = {name for name, _ in own}
    kept = [] if keys.get("override_logical_axis_rules") else table()["rules"]
    return [(name, tuple(axes)) for name, axes in [*(rule for rule in kept if rule[0] not in replaced), *own]]


def assigned(sides: Sequence[str], logical: Sequence[tuple[str, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """The axes of the mesh over which each side of an array is shared out; as flax.core.spmd.logical_to_mesh_axes.

    The first rule for a side whose axes are all still free in this array wins, whatever their sizes.
    """
    found: dict[int, tuple[str, ...]] = {}
    for name, axes in logical:
        if name in sides and (at := list(sides).index(name)) not in found:
            taken = {axis for given in found.values() for axis in given}
            if not taken & set(axes):
                found[at] = axes
    return [found.get(at, ()) for at in range(len(sides))]


def batch_axes(train: Mapping[str, Any]) -> tuple[str, ...]:
    """The axes over which a batch's sequences are shared out."""
    logical = rules(train) or [(name, tuple(axes)) for name, axes in table()["rules"]]
    wanted = next((axes for name, axes in logical if name == _BATCH[1]), ())
    return tuple(axis for axis in wanted if axis in mesh_axes(train))


@dataclass(frozen=True)
class Batch:
    """Sequences of one step, over all devices: `load` are read, of which `train` are trained on in `micro` parts."""

    load: int
    train: int
    micro: int
    """Sequences of one forward pass: a step's, or one part of it with gradient accumulation."""


def batch(train: Mapping[str, Any], devices: int, *, evaluation: bool = False) -> Batch:
    """The sequences of a step on `devices` devices in all, as maxtext.configs.types.calculate_global_batch_sizes."""
    keys = settings(train)
    per_device = float(keys["per_device_batch_size"])
    if evaluation:
        per_device = float(keys["eval_per_device_batch_size"] or per_device)
    factor = float(keys["expansion_factor_real_data"])
    factor = factor if factor > 0 else 1
    steps = 1 if evaluation else int(keys["gradient_accumulation_steps"])
    loaded = devices * factor if per_device < 1 else int(devices * per_device * factor)
    micro = int(devices * per_device)
    return Batch(int(loaded * steps), micro * steps, micro)
