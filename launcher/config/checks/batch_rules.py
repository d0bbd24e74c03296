"""Rules for the batch: each device's share of it, and how the mesh, the slices and the stages divide it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.config.checks.problems import ERROR, WARNING, CheckContext, Problem
from launcher.config.checks.train_context import SLICE, Devices, devices_of, mesh_of, path_of, train_of
from launcher.config.maxtext import models
from launcher.config.maxtext.mesh import Batch, Mesh, batch, batch_axes, rules


def batch_size(case: CheckContext) -> Iterator[Problem]:
    train = train_of(case)
    if train is None or (devices := devices_of(case)) is None or (run_mesh := mesh_of(train, devices)) is None:
        return
    problems = list(_one_batch(case, train, devices, run_mesh, "per_device_batch_size"))
    if train.get("eval_per_device_batch_size") and _evaluates(case):
        problems += _one_batch(case, train, devices, run_mesh, "eval_per_device_batch_size")
    if not any(problem.severity == ERROR for problem in problems):
        # If MaxText rejects the batch, do not also report it as wasteful.
        problems = list(_tiles(case, train)) or problems
    yield from problems


def _tiles(case: CheckContext, train: Mapping[str, Any]) -> Iterator[Problem]:
    """Apply the check of maxtext.configs.types, even for one tile: then a device's tokens must be a whole number."""
    keys = models.settings(train)
    tokens, tiles = float(keys["per_device_batch_size"]) * int(keys["max_target_length"]), int(keys["num_vocab_tiling"])
    if tiles > 0 and tokens % tiles:
        path = path_of(case, ["num_vocab_tiling", "per_device_batch_size", "max_target_length"])
        if tiles == 1:
            wrong = "are not a whole number; raise the batch until they are a whole number"
        else:
            wrong = f"cannot be divided into {tiles} tiles; use a divisor of {tokens:,g}"
        message = (
            f"train.{path[1]}: a device's {tokens:,g} tokens (train.per_device_batch_size x train.max_target_length) "
            f"{wrong}."
        )
        yield from case.across("batch", path, message, "train.per_device_batch_size", "train.max_target_length")


def _evaluates(case: CheckContext) -> bool:
    data, train = case.tree["data"], case.tree["train"]
    if data["files"] or data["corpus"] or data["mixture"]:
        return bool(data["heldOut"]["files"] or data["heldOut"]["fraction"])
    return bool((train.get("eval_interval") or -1) > 0)


def _one_batch(
    case: CheckContext, train: Mapping[str, Any], devices: Devices, run_mesh: Mesh, key: str
) -> Iterator[Problem]:
    evaluation = key.startswith("eval")
    keys = models.settings(train)
    sequences: Batch = batch(train, devices.total, evaluation=evaluation)
    value, path = keys[key], path_of(case, [key])
    of = f"train.{key}: {value:g} on {devices.total} device{'s' if devices.total != 1 else ''}"
    problem: tuple[str, str] | None = None
    real = any(case.tree["data"][key] for key in ("files", "corpus", "mixture")) or keys["dataset_type"] != "synthetic"
    # Real data is read in whole sequences for every device (grain_data_processing.make_grain_train_iterator and
    # similar functions assert it), synthetic data for every part into which the batch is sharded.
    parts = devices.total if real else run_mesh.over(batch_axes(train))
    shared = run_mesh.over(["data", "fsdp", "fsdp_transpose", "expert"] if rules(train) else ["data", "fsdp"])
    some = f"{sequences.micro} sequence{'s' if sequences.micro != 1 else ''}"
    if sequences.micro < 1:
        problem = (
            ERROR,
            f"{of} is less than one sequence; raise it to at least {math.ceil(1e6 / devices.total) / 1e6:g}.",
        )
    elif sequences.load % parts:
        problem = (
            ERROR,
            (
                f"{of} is {sequences.load} sequences, which cannot be divided among {parts} devices; use a whole "
                "number, or a fraction below 1."
            ),
        )
    elif sequences.micro % shared and run_mesh.over(["stage"]) == 1:
        axes = f"{of} is {some}, and the mesh divides a batch among {shared} devices"
        wide = int(keys["max_target_length"]) >= 128
        kernel = keys["attention"] == "flash" or (keys["attention"] == "autoselected" and wide)
        if devices.kind == "tpu" and kernel:
            # attention_op.AttentionOp.tpu_flash_attention asserts this for data and fsdp, JAX's shard_map for others.
            problem = (
                ERROR,
                (
                    f"{axes}, but the attention kernel requires equal parts; raise it, or move devices to "
                    "train.ici_tensor_parallelism or train.ici_context_parallelism."
                ),
            )
        else:
            problem = WARNING, f"{axes}; some of them have nothing to compute."
    if problem:
        yield from case.across("batch", path, problem[1], *SLICE, severity=problem[0])
