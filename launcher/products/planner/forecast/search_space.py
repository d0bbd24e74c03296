"""The changes that can make a run that fits faster: batch, remat policy, sharding, attention's blocks.

Only the batch changes what is learnt, and only through the number of sequences per step. Sequence length,
number types, optimizer and quantization stay as the user set them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launcher.config.maxtext import models
from launcher.config.maxtext.mesh import Mesh, key_of
from launcher.products.planner.forecast.estimate import KEPT, TENSORS

BATCH = "per_device_batch_size"
FLAGS = "LIBTPU_INIT_ARGS"
_LARGER = (1.25, 1.5, 2, 3, 4)
_POLICIES = (
    *("full", "save_out_proj", "save_qkv_proj", "save_dot_except_mlp", "save_dot_with_context_except_mlp"),
    *("minimal", "minimal_with_context", "qkv_proj_offloaded", "minimal_offloaded"),
)
_PROJECTIONS = ("query_proj", "key_proj", "value_proj")
# The tensors that the published recipes offload to the host's memory, and the same with the attention's output kept in
# HBM, so that its kernel does not run again in the backward pass.
_CUSTOM: tuple[Mapping[str, str], ...] = (
    {"decoder_layer_input": "offload"},
    dict.fromkeys(("decoder_layer_input", *_PROJECTIONS), "offload"),
    dict.fromkeys(("decoder_layer_input", *_PROJECTIONS, "out_proj"), "offload"),
    {**dict.fromkeys(("decoder_layer_input", *_PROJECTIONS, "out_proj"), "offload"), "context": "device"},
    {"context": "device"},
    {**dict.fromkeys((*_PROJECTIONS, "out_proj", "context"), "device")},
)
_Q_BLOCKS = ("sa_block_q", "sa_block_q_dkv", "sa_block_q_dq")
_BLOCKS = (
    *_Q_BLOCKS,
    *("sa_block_kv", "sa_block_kv_compute", "sa_block_kv_dkv", "sa_block_kv_dkv_compute", "sa_block_kv_dq"),
)
_FUSED = "sa_use_fused_bwd_kernel"
# MaxText's defaults (configs/base.yml) for the keys here that are not in launcher/config/maxtext/models.py.
_DEFAULTS: Mapping[str, Any] = {
    "remat_policy": "full",
    **dict.fromkeys(TENSORS, "remat"),
    "decoder_layer_input": "device",
    **dict.fromkeys(_BLOCKS, 512),
    _FUSED: False,
}
# Chips with 128 MiB of VMEM. Blocks of 2048 need more of it than the compiler gives a kernel by default. Google's
# recipes for v6e set 96 MiB. On other chips the compiler reports whether the blocks fit.
_ROOM = {"v5e": 98304, "v6e": 98304}
_ROOM_FLAG = "--xla_tpu_scoped_vmem_limit_kib"
_TENSOR = (1, 2, 4, 8)
_DATA = (1, 2, 4, 8)
AXES = tuple(f"train.{key_of(axis, 'ici')}" for axis in ("data", "fsdp", "tensor"))
"""The keys that a sharding lever sets."""


@dataclass(frozen=True)
class Lever:
    """A change to try.

    `sets` are values by key, as in --set. `kind` is batch (a larger one), less (a smaller one, which only makes room
    for another lever), remat, sharding or attention.
    """

    kind: str
    sets: Mapping[str, Any]


_TOGETHER = {frozenset(pair) for pair in itertools.combinations(("batch", "remat", "sharding", "attention"), 2)} | {
    frozenset({"less", "remat"}),
    frozenset({"less", "sharding"}),
}


def candidates(config: Mapping[str, Any], mesh: Mesh) -> Iterator[Mapping[str, Any]]:
    """Yield what to set on top of a run config: each lever, and each pair of levers of different kinds."""
    all_levers = levers(config, mesh)
    for lever in all_levers:
        if lever.kind != "less":
            yield lever.sets
    for first, second in itertools.combinations(all_levers, 2):
        if {first.kind, second.kind} in _TOGETHER:
            yield {**first.sets, **second.sets}


def levers(config: Mapping[str, Any], mesh: Mesh) -> list[Lever]:
    """Return the levers for a run config with this mesh, without those that change nothing."""
    keys = {**_DEFAULTS, **models.settings(config["train"])}
    all_levers = [*_batches(keys), *_remats(keys), *_shardings(keys, mesh), *_attention(config, keys)]
    return [lever for lever in all_levers if not _is_set(lever.sets, config, keys)]


def value_of(train: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return a function that gives the value of a key, from `train`, the model, or MaxText's defaults."""
    keys = {**_DEFAULTS, **models.settings(train)}
    return keys.get


def _is_set(sets: Mapping[str, Any], config: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    env = config["worker"]["env"]
    return all(
        (keys.get(key.removeprefix("train.")) if key.startswith("train.") else env.get(FLAGS)) == value
        for key, value in sets.items()
    )


def _batches(keys: Mapping[str, Any]) -> Iterator[Lever]:
    now = float(keys[BATCH])
    if now < 1:
        sizes = {now * 2, now * 4, 1.0}
    else:
        sizes = {float(math.floor(now / 2)), now - 1, now + 1, *(float(math.floor(now * factor)) for factor in _LARGER)}
    for size in sorted(sizes):
        if size > 0 and size != now and (size >= 1 or now < 1):
            yield Lever("batch" if size > now else "less", {f"train.{BATCH}": int(size) if size == int(size) else size})


def _remats(keys: Mapping[str, Any]) -> Iterator[Lever]:
    now = str(keys["remat_policy"])
    if now not in KEPT and now != "custom":
        return  # a policy that is not known here is the user's choice
    for policy in _POLICIES:
        if policy != now:
            yield Lever("remat", {"train.remat_policy": policy})
    for wanted in _CUSTOM:
        # Reset the other tensors, because values that the user set for them would also apply.
        given = {name: _DEFAULTS[name] for name in TENSORS if keys[name] != _DEFAULTS[name]}
        where = {f"train.{name}": value for name, value in {**given, **wanted}.items()}
        yield Lever("remat", {"train.remat_policy": "custom", **where})


def _shardings(keys: Mapping[str, Any], mesh: Mesh) -> Iterator[Lever]:
    """Yield the other ways to split the chips of fsdp, tensor and data over these three axes."""
    chips = math.prod(mesh.ici.get(axis, 1) for axis in ("fsdp", "tensor", "data"))
    now = tuple(mesh.ici.get(axis, 1) for axis in ("data", "tensor"))
    for data, tensor in itertools.product(_DATA, _TENSOR):
        if (data, tensor) == now or chips % (data * tensor) or (data > 1 and tensor > 1):
            continue
        sizes = {"fsdp": chips // (data * tensor), "tensor": tensor, "data": data}
        wanted = {key_of(axis, "ici"): size for axis, size in sizes.items()}
        yield Lever("sharding", {f"train.{key}": size for key, size in wanted.items() if keys.get(key) != size})


def _attention(config: Mapping[str, Any], keys: Mapping[str, Any]) -> Iterator[Lever]:
    """Yield larger blocks, and the backward pass in one kernel, for the kernel that MaxText uses by default on a
    TPU."""
    if str(keys.get("attention")) not in ("autoselected", "flash"):
        return
    length, now = int(keys["max_target_length"]), int(keys["sa_block_q"])
    fused = bool(keys[_FUSED])
    for block in (now, 1024, 2048):
        if block < now or length % block or (block == now and fused):
            continue
        blocks = {} if block == now else {f"train.{key}": block for key in _BLOCKS}
        yield Lever("attention", {**blocks, **_room(config, block), f"train.{_FUSED}": True})


def _room(config: Mapping[str, Any], block: int) -> dict[str, str]:
    """Return the compiler flag that a kernel with such blocks needs, after the flags in the values."""
    flags = str(config["worker"]["env"].get(FLAGS) or "")
    room = _ROOM.get(config["accelerator"]["name"])
    if block < 2048 or room is None or _ROOM_FLAG in flags:
        return {}
    return {f"worker.env.{FLAGS}": f"{flags} {_ROOM_FLAG}={room}".strip()}
