"""The rule for the block sizes with which the TPU's attention kernel processes a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.config.checks.mesh_rules import sequence
from launcher.config.checks.problems import CheckContext, Problem
from launcher.config.checks.train_context import devices_of, mesh_of, path_of, train_of
from launcher.config.maxtext import models, splash_attention
from launcher.config.maxtext.mesh import assigned, key_of, rules
from launcher.config.suggest import join_or


def blocks(case: CheckContext) -> Iterator[Problem]:
    """Report block sizes that the TPU's kernel rejects: see launcher/config/maxtext/splash_attention.py."""
    train = train_of(case)
    if train is None or not splash_attention.is_used(keys := models.settings(train)):
        return
    if (devices := devices_of(case)) is None or devices.kind != "tpu":
        return
    run_mesh = mesh_of(train, devices)
    length = int(keys["max_target_length"])
    if run_mesh is None or length < 1:
        return
    axes = _query_axes(train)
    shards = run_mesh.over(axes)
    if shards > 1 and keys["context_parallel_strategy"] != "all_gather":
        return  # the other strategies use other kernels
    if next(sequence(case, train, run_mesh), None):
        return  # another rule reports it
    by = [key for axis in axes for level in ("ici", "dcn") if int(keys.get(key := key_of(axis, level), 1)) != 1]
    others = ("train.max_target_length", "train.attention", *(f"train.{key}" for key in by))
    tokens = f"a sequence of {length:,} tokens"
    if shards > 1:
        tokens = f"a device's {length // shards:,} tokens of {tokens}"
    nearest = splash_attention.nearest_length(keys, length, shards)
    kernel = "the TPU's attention kernel"
    if length % (shards * splash_attention.LANES):
        message = (
            f"train.max_target_length: {kernel} requires blocks of a multiple of {splash_attention.LANES} tokens and "
            f"cannot divide {tokens}; use {nearest or f'a multiple of {shards * splash_attention.LANES}'}, or set "
            "train.attention: dot_product."
        )
        yield from case.across("attention", ("train", "max_target_length"), message, *others)
        return
    for fault in splash_attention.faults(keys, length, shards):
        path = path_of(case, [*fault.keys, *([fault.of] if fault.of else []), "max_target_length", *by])
        block = f"a block of {fault.other:,}" + (f" (train.{fault.of})" if fault.of != path[1] else "")
        says = {
            "sequence": f"{kernel} cannot divide {tokens} into equal blocks of {fault.size:,}",
            "unit": f"{kernel} requires blocks of a multiple of {fault.other}, not of {fault.size:,}",
            "parts": f"{kernel} cannot compute {block} in parts of {fault.size:,}",
        }[fault.why]
        alone = fault.keys == (path[1],)
        named = "" if alone else f" ({join_or([f'train.{key}' for key in fault.keys], 'and')})"
        use = f"use {fault.nearest}" if alone else f"set {'it' if len(fault.keys) == 1 else 'them'} to {fault.nearest}"
        if path[1] == "max_target_length" and nearest:
            use += f", or train.max_target_length to {nearest}"
        message = f"train.{path[1]}: {says}{named}; {use}."
        yield from case.across("attention", path, message, *others, *(f"train.{key}" for key in fault.keys))


def _query_axes(train: Mapping[str, Any]) -> list[str]:
    """Return the mesh axes that shard the kernel's queries, as AttentionOp._context_parallel_size computes them."""
    logical = rules(train)
    (axes,) = assigned(["activation_q_length"], logical) if logical else [()]
    return [axis for axis in axes if axis != "context_usp_ulysses"]
