"""The mesh that MaxText builds from `train` on given slices, and which of its axes shard which arrays.

Pure arithmetic, as in maxtext.utils.max_utils.fill_unspecified_mesh_axes and the checks in maxtext.configs.types.
"Devices" are JAX's: one per chip, except for Ironwood, whose chips are two devices each.
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
# The key of an axis if it differs from the axis' own name.
_KEY_OF = {"stage": "pipeline", "model": "tensor"}
_BATCH = ("activation_batch", "activation_embed_and_logits_batch")


class MeshError(ValueError):
    """An invalid mesh.

    `why` is "one-slice" (axes between slices, but only one slice), "odd" (an axis of 0, or below -1), "open" (more
    than one -1), or "product" (the product of the sizes is not the number of devices or slices). `keys` are MaxText's
    keys that cause it, `level` is ici or dcn, `product` is the given sizes as text.
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
        """The number of devices along each axis, over all slices."""
        return {axis: size * self.dcn.get(axis, 1) for axis, size in self.ici.items()}

    @property
    def devices(self) -> int:
        """The number of devices over all slices."""
        return math.prod(self.sizes.values())

    def over(self, axes: Iterable[str]) -> int:
        """Return the number of shards over these axes; an axis that the mesh lacks counts as 1."""
        sizes = self.sizes
        return math.prod(sizes.get(axis, 1) for axis in axes)


def devices_per_slice(slice_: Slice) -> int:
    """Return the number of devices that JAX sees in one slice."""
    return slice_.chips * _DEVICES_PER_CHIP.get(slice_.accelerator, 1)


def key_of(axis: str, level: str) -> str:
    """Return MaxText's key for an axis of the mesh; `level` is ici or dcn."""
    return f"{level}_{_KEY_OF.get(axis, axis)}_parallelism"


def mesh_axes(train: Mapping[str, Any]) -> list[str]:
    """Return the axes of the mesh, in MaxText's order."""
    keys = settings(train)
    custom = table()["custom_meshes"].get(keys["custom_mesh_and_rule"] or "")
    axes: list[str] = custom or keys.get("mesh_axes") or table()["mesh_axes"]
    return axes


def mesh(train: Mapping[str, Any], *, slices: int, devices: int) -> Mesh:
    """Return the mesh over `slices` slices of `devices` devices each, with each -1 filled in as MaxText does.

    Raises MeshError if MaxText rejects the mesh.
    """
    keys, axes = settings(train), mesh_axes(train)
    ici = {axis: int(keys.get(key_of(axis, "ici"), 1)) for axis in axes}
    dcn = {axis: int(keys.get(key_of(axis, "dcn"), 1)) for axis in axes}
    if slices == 1:
        # MaxText reads all keys except diloco's, whether the mesh has the axis or not.
        wanted = [
            key
            for key, size in keys.items()
            if re.fullmatch(r"dcn_(?!diloco)\w+_parallelism", key) and abs(int(size)) > 1
        ]
        if wanted:
            raise MeshError("one-slice", wanted, "dcn")
        return Mesh(_filled(ici, devices, "ici"), dict.fromkeys(axes, 1))
    if dcn.get("diloco") == -1:
        # MaxText fills in this axis before any other.
        rest = math.prod(size for size in dcn.values() if size != -1)
        if rest < 1 or slices % rest:
            raise MeshError("product", [key_of("diloco", "dcn")], "dcn", str(rest))
        dcn["diloco"] = slices // rest
    return Mesh(_filled(ici, devices, "ici"), _filled(dcn, slices, "dcn"))


def _filled(sizes: Mapping[str, int], target: int, level: str) -> dict[str, int]:
    """Return the sizes with the -1 filled in so that their product is `target`. Raises MeshError."""
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
    raise MeshError("product", [key_of(axis, level) for axis in fixed or sizes], level, spelled)


# --- Sharding over the mesh ---------------------------------------------------------------------------------------


def rules(train: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]] | None:
    """Return MaxText's logical axis rules in order; None if `train` sets its own, which are not read here."""
    keys = settings(train)
    if train.get("logical_axis_rules") or train.get("mesh_axes") or keys["custom_mesh_and_rule"]:
        return None
    own = row_of(train).get("rules", [])
    replaced = {name for name, _ in own}
    kept = [] if keys.get("override_logical_axis_rules") else table()["rules"]
    return [(name, tuple(axes)) for name, axes in [*(rule for rule in kept if rule[0] not in replaced), *own]]


def assigned(sides: Sequence[str], logical: Sequence[tuple[str, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Return the mesh axes that shard each dimension of an array, as flax.core.spmd.logical_to_mesh_axes does.

    For each dimension, the first rule whose axes are all unused in this array applies, regardless of their sizes.
    """
    by_side: dict[int, tuple[str, ...]] = {}
    for name, axes in logical:
        if name in sides and (at := list(sides).index(name)) not in by_side:
            taken = {axis for given in by_side.values() for axis in given}
            if not taken & set(axes):
                by_side[at] = axes
    return [by_side.get(at, ()) for at in range(len(sides))]


def batch_axes(train: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the axes that shard a batch's sequences."""
    logical = rules(train) or [(name, tuple(axes)) for name, axes in table()["rules"]]
    wanted = next((axes for name, axes in logical if name == _BATCH[1]), ())
    return tuple(axis for axis in wanted if axis in mesh_axes(train))


@dataclass(frozen=True)
class Batch:
    """Sequences of one step over all devices: `load` are read, `train` are used for training, in parts of `micro`."""

    load: int
    train: int
    micro: int
    """Sequences of one forward pass: a whole step's, or one part of it with gradient accumulation."""


def batch(train: Mapping[str, Any], devices: int, *, evaluation: bool = False) -> Batch:
    """Return the sequences of a step on all `devices`, as maxtext.configs.types.calculate_global_batch_sizes does."""
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
