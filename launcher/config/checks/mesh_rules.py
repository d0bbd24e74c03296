"""Rules for MaxText's mesh on the slices, and for the dimensions of a model that the mesh must divide.

They report nothing if the model (launcher/config/maxtext/models.py) or the slices are not known. The behavior of
MaxText 0.2.5 was read in its sources and tried; the tests name the source location.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launcher.config.checks.problems import WARNING, CheckContext, Problem, Rule
from launcher.config.checks.train_context import SLICE, Devices, devices_of, is_given, mesh_of, path_of, train_of
from launcher.config.maxtext import models
from launcher.config.maxtext.mesh import Mesh, MeshError, assigned, batch, key_of, mesh, mesh_axes, rules
from launcher.config.suggest import join_or

_WORDS = {
    "emb_dim": "width (base_emb_dim)",
    "num_query_heads": "query heads",
    "num_kv_heads": "key and value heads",
    "mlp_dim": "feed-forward width (base_mlp_dim)",
    "moe_mlp_dim": "experts' width (base_moe_mlp_dim)",
    "head_dim": "width of a head",
    "vocab_size": "vocabulary",
    "num_experts": "experts",
}


def _mesh(case: CheckContext) -> Iterator[Problem]:
    train = train_of(case)
    if train is None or (devices := devices_of(case)) is None:
        return
    try:
        mesh(train, slices=devices.slices, devices=devices.each)
    except MeshError as error:
        path = path_of(case, error.keys)
        yield from case.across("mesh", path, _mesh_sentence(case, error, devices, path[1]), *SLICE)
    for level in ("ici", "dcn"):
        # base.yml's mesh_axes has no "sequence", and _resolve_parallelism uses only the mesh's axes.
        key = f"{level}_sequence_parallelism"
        if level == "ici" and train.get(key) not in (None, 1):
            message = (
                f"train.{key} has no effect: MaxText's mesh has no such axis; "
                f"train.{level}_context_parallelism divides the sequence."
            )
            yield case.problem("mesh", ("train", key), message, WARNING)


def _mesh_sentence(case: CheckContext, error: MeshError, devices: Devices, key: str) -> str:
    value = models.settings(case.tree["train"]).get(key, 1)
    if error.why == "one-slice":
        return (
            f"train.{key} is {value}, but the run has only one slice, and the key divides work among slices; remove "
            "it, or raise slice.count."
        )
    if error.why == "odd":
        rest = "devices" if error.level == "ici" else "slices"
        return f"train.{key} is {value}; it must be at least 1, or -1 for all remaining {rest}."
    if error.why == "open":
        others = [other for other in error.keys if other != key]
        default = "" if is_given(case, others[0]) else ", by MaxText's default"
        return (
            f"train.{key} is -1, and so is train.{others[0]}{default}; MaxText can compute only one of them: "
            f"set train.{others[0]}: 1."
        )
    multiple = " a multiple of" if -1 in _sizes(case, error.level) else ""
    if error.level == "dcn":
        return (
            f"train.{key}: the mesh between slices requires{multiple} {error.product}, but slice.count is "
            f"{devices.slices}; change one of them."
        )
    plural = "s" if error.product != "1" else ""
    hint = f"use a divisor of {devices.each}" if multiple else f"make it {devices.each}, or set one axis to -1"
    if devices.each == 1:
        hint = "remove it"
    return f"train.{key}: the mesh requires{multiple} {error.product} device{plural}, but {devices.words}; {hint}."


def _sizes(case: CheckContext, level: str) -> list[int]:
    train = case.tree["train"]
    keys = models.settings(train)
    return [int(keys.get(key_of(axis, level), 1)) for axis in mesh_axes(train)]


# --- What the mesh must divide ------------------------------------------------------------------------------------


def _sharding(case: CheckContext) -> Iterator[Problem]:
    """Report arrays that JAX rejects as a step's input or output because the mesh does not divide a dimension."""
    train = train_of(case)
    if train is None or (devices := devices_of(case)) is None or (run_mesh := mesh_of(train, devices)) is None:
        return
    yield from _weights(case, train, devices, run_mesh)
    yield from sequence(case, train, run_mesh)


def _weights(case: CheckContext, train: Mapping[str, Any], devices: Devices, run_mesh: Mesh) -> Iterator[Problem]:
    logical, arrays = rules(train), models.weights(train)
    if logical is None or arrays is None:
        return
    worst: dict[str, tuple[int, int, tuple[str, ...]]] = {}
    for array in arrays:
        for size, name, axes in zip(array.shape, array.dimensions, assigned(array.axes, logical), strict=True):
            parts = run_mesh.over(axes)
            if name and size % parts and parts > worst.get(name, (0,))[0]:
                worst[name] = (parts, size, tuple(axis for axis in axes if run_mesh.over([axis]) > 1))
    for name, (parts, size, axes) in worst.items():
        keys = [key_of(axis, level) for axis in axes for level in ("ici", "dcn")]
        path = path_of(case, keys)
        if path not in case.user.origins:
            path = ("slice", "topology" if devices.kind == "tpu" else "hosts")
        spelled = " x ".join(f"{axis} {run_mesh.over([axis])}" for axis in axes)
        message = (
            f"train.{path_of(case, keys)[1]}: {_model(train)}'s {_WORDS[name]}, {size:,}, cannot be divided among "
            f"{parts} devices ({spelled}); {_remedy(axes, parts, size, devices)}"
        )
        yield from case.across("sharding", path, message, *SLICE, "train.model_name")


def _remedy(axes: Sequence[str], parts: int, size: int, devices: Devices) -> str:
    most = math.gcd(parts, size)
    if list(axes) == ["fsdp"] and devices.slices == 1:
        return f"set train.ici_fsdp_parallelism: {most} and train.ici_data_parallelism: {parts // most}."
    return f"use a divisor of {size:,}, such as {most}."


def _model(train: Mapping[str, Any]) -> str:
    name = models.name_of(train)
    return "the model" if name == "default" else name


def sequence(case: CheckContext, train: Mapping[str, Any], run_mesh: Mesh) -> Iterator[Problem]:
    keys = models.settings(train)
    length = int(keys["max_target_length"])
    axes = ("tensor_sequence", "context", "context_usp_ulysses")
    parts, context = run_mesh.over(axes), run_mesh.over(["context"])
    balanced = bool(keys["context_parallel_load_balance"]) and context > 1 and keys["context_sharding"] == "context"
    by = [key for axis in axes for level in ("ici", "dcn") if int(keys.get(key := key_of(axis, level), 1)) != 1]
    if balanced and context % 2:
        message = (
            f"train.{path_of(case, by)[1]}: the sequence is divided among {context} devices, but load balancing "
            "requires an even number; use an even number, or set train.context_parallel_load_balance: false."
        )
        yield from case.across("sharding", path_of(case, by), message, *SLICE)
    elif length % (parts * (2 if balanced else 1)):
        halves, unit = (", in two pieces each", 2 * parts) if balanced else ("", parts)
        message = (
            f"train.max_target_length: a sequence of {length:,} tokens cannot be divided among {parts} devices"
            f"{halves} ({join_or([f'train.{key}' for key in by], 'and')}); use a multiple of {unit}."
        )
        yield from case.across("sharding", path_of(case, ["max_target_length", *by]), message, *SLICE)


def _heads(case: CheckContext) -> Iterator[Problem]:
    """Apply the check of maxtext.layers.attentions.Attention: each key and value head serves as many query heads."""
    train = train_of(case)
    if train is None or models.settings(train)["attention_type"] in ("mla", "compressed"):
        return
    keys = models.settings(train)
    query, shared = int(keys["base_num_query_heads"]), int(keys["base_num_kv_heads"])
    if shared > 0 and query % shared:
        path = path_of(case, ["base_num_kv_heads", "base_num_query_heads"])
        message = f"train.{path[1]}: {query} query heads cannot be divided evenly among {shared} key and value heads."
        yield from case.across(
            "heads", path, message, "train.base_num_query_heads", "train.base_num_kv_heads", "train.model_name"
        )


# --- Pipelines ----------------------------------------------------------------------------------------------------


def _pipeline(case: CheckContext) -> Iterator[Problem]:
    """Apply the assertions of maxtext.configs.types about a pipeline's stages, layers and microbatches."""
    train = train_of(case)
    if train is None:
        return
    keys = models.settings(train)
    sizes = {key: int(keys[key]) for key in ("ici_pipeline_parallelism", "dcn_pipeline_parallelism")}
    if max(sizes.values()) < 2 or min(sizes.values()) < 1:
        return
    devices = devices_of(case)
    if devices and mesh_of(train, devices) is None:
        return  # another rule reports it
    stages, path = math.prod(sizes.values()), path_of(case, [key for key, size in sizes.items() if size > 1])
    try:
        layers = models.dimensions(train)["num_decoder_layers"]
    except ValueError:
        return
    if int(keys["pipeline_parallel_layers"]) != -1:
        layers = int(keys["pipeline_parallel_layers"])
    elif keys["decoder_block"] == "deepseek":
        layers -= int(keys["first_num_dense_layers"])
    layers_per_stage, repeats = int(keys["num_layers_per_pipeline_stage"]), int(keys["num_pipeline_repeats"])
    others = ("train.model_name", "train.base_num_decoder_layers", "train.pipeline_parallel_layers")
    if layers % (stages * layers_per_stage) or (repeats != -1 and stages * layers_per_stage * repeats != layers):
        times = f" x {repeats} repeats" if repeats != -1 else ""
        message = (
            f"train.{path[1]}: {layers} layers cannot be divided into {stages} stages of {layers_per_stage}{times}; "
            "change the stages, train.num_layers_per_pipeline_stage, train.num_pipeline_repeats or "
            "train.pipeline_parallel_layers."
        )
        yield from case.across("pipeline", path, message, *others)
    parts = int(keys["num_pipeline_microbatches"])
    least = 2 * stages if keys["pipeline_delay_activation_forwarding"] else stages
    parts = least if parts == -1 else parts
    if parts % stages or parts < least:
        message = (
            f"train.num_pipeline_microbatches: {parts} microbatches are not a multiple of {stages} stages"
            + (f", or are fewer than {least}" if least > stages else "")
            + "."
        )
        yield from case.across("pipeline", ("train", "num_pipeline_microbatches"), message, f"train.{path[1]}")
    elif devices and (micro := batch(train, devices.total).micro) and micro % parts:
        message = (
            f"train.per_device_batch_size: {micro} sequences per forward pass ({devices.total} devices) cannot be "
            f"divided into {parts} microbatches; change it, or train.num_pipeline_microbatches."
        )
        yield from case.across("pipeline", path_of(case, ["per_device_batch_size", path[1]]), message, *SLICE)


MESH_RULES: Sequence[Rule] = (_mesh, _sharding, _heads, _pipeline)
