"""Rules for what MaxText makes of `train` on the slices: its mesh, its batch, and what the mesh must divide.

They say nothing where launcher/models.py or the slices do not tell. What MaxText 0.2.5 does with each was read in its
sources and tried; the tests name the place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher import accelerators, models, splash
from launcher.checks.cluster_rules import contradictions
from launcher.checks.guess import either
from launcher.checks.problems import ERROR, WARNING, Case, Problem, Rule, table_of
from launcher.mesh import (
    Batch,
    Mesh,
    MeshError,
    assigned,
    batch,
    batch_axes,
    devices_per_slice,
    key_of,
    mesh,
    mesh_axes,
    rules,
)

_SLICE = ("slice.accelerator", "slice.topology", "slice.machineType", "slice.hosts", "slice.count")

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


@dataclass(frozen=True)
class Devices:
    """Slices of `each` devices; `words` say what one of them is."""

    kind: str
    slices: int
    each: int
    words: str

    @property
    def total(self) -> int:
        return self.slices * self.each


def train_of(case: Case) -> Mapping[str, Any]:
    """The keys for MaxText, where they are sound and something trains; else empty."""
    train = {key: value for key, value in case.tree["train"].items() if value is not None}
    if not train or not case.train_is_sound or case.tree["run"]["command"] or not models.row_of(train):
        return {}
    return train


def devices_of(case: Case) -> Devices | None:
    """What JAX will see; None where that is not known here."""
    part, run, table = case.tree["slice"], case.tree["run"], table_of(case.tree)
    if next(contradictions(case), None):
        return None
    try:
        one = accelerators.resolve(part, table)
    except accelerators.SliceError:
        return None
    count = int(part["count"])
    if one.kind == "tpu":
        each = devices_per_slice(one)
        chips = f" ({each} devices)" if each != one.chips else ""
        plural = "s" if one.chips != 1 else ""
        return Devices(
            "tpu", count, each, f"a {one.accelerator} slice of {one.topology} has {one.chips} chip{plural}{chips}"
        )
    if "xla_force_host_platform_device_count" in case.tree["worker"]["env"].get("XLA_FLAGS", ""):
        return None
    if run["kind"] != "local" and one.hosts * count > 1:
        return None  # several machines without TPUs: whether JAX sees one slice or one each is its own affair
    each = one.chips * count
    plural = "s" if each != 1 else ""
    return Devices(one.kind, 1, each, f"the run has {each} device{plural}")


def _mesh_of(train: Mapping[str, Any], devices: Devices) -> Mesh | None:
    try:
        return mesh(train, slices=devices.slices, devices=devices.each)
    except MeshError:
        return None


def _path(case: Case, keys: Sequence[str]) -> tuple[str, str]:
    """The first of MaxText's keys that the user gave; else the first."""
    given = [key for key in keys if _is_given(case, key)]
    return ("train", [*given, *keys][0])


def _is_given(case: Case, key: str) -> bool:
    return ("train", key) in case.user.origins


# --- The mesh -----------------------------------------------------------------------------------------------------


def _mesh(case: Case) -> Iterator[Problem]:
    train = train_of(case)
    if not train or (devices := devices_of(case)) is None:
        return
    try:
        mesh(train, slices=devices.slices, devices=devices.each)
    except MeshError as error:
        path = _path(case, error.keys)
        yield from case.across("mesh", path, _mesh_sentence(case, error, devices, path[1]), *_SLICE)
    for level in ("ici", "dcn"):
        # base.yml's mesh_axes has no "sequence", and _resolve_parallelism takes the mesh's axes alone.
        key = f"{level}_sequence_parallelism"
        if level == "ici" and train.get(key) not in (None, 1):
            message = (
                f"train.{key} has no effect: MaxText's mesh has no such axis; "
                f"train.{level}_context_parallelism shares out the sequence."
            )
            yield case.problem("mesh", ("train", key), message, WARNING)


def _mesh_sentence(case: Case, error: MeshError, devices: Devices, key: str) -> str:
    value = models.settings(case.tree["train"])[key]
    if error.why == "one-slice":
        return (
            f"train.{key} is {value}, and there is one slice: between slices there is nothing to share out; "
            f"remove it, or raise slice.count."
        )
    if error.why == "odd":
        return f"train.{key} is {value}; an axis of the mesh takes 1 or more, or -1 for all that is left."
    if error.why == "open":
        others = [other for other in error.keys if other != key]
        default = "" if _is_given(case, others[0]) else ", by MaxText's default"
        return (
            f"train.{key} is -1, and so is train.{others[0]}{default}; MaxText fills in one of them: "
            f"set train.{others[0]}: 1."
        )
    multiple = " a multiple of" if -1 in _sizes(case, error.level) else ""
    if error.level == "dcn":
        return (
            f"train.{key}: between slices the mesh takes{multiple} {error.product}, and slice.count is "
            f"{devices.slices}; change one of the two."
        )
    plural = "s" if error.product != "1" else ""
    hint = f"use a divisor of {devices.each}" if multiple else f"make it {devices.each}, or set one axis to -1"
    if devices.each == 1:
        hint = "remove it"
    return f"train.{key}: the mesh takes{multiple} {error.product} device{plural}, and {devices.words}; {hint}."


def _sizes(case: Case, level: str) -> list[int]:
    train = case.tree["train"]
    keys = models.settings(train)
    return [int(keys.get(key_of(axis, level), 1)) for axis in mesh_axes(train)]


# --- What the mesh must divide ------------------------------------------------------------------------------------


def _sharding(case: Case) -> Iterator[Problem]:
    """JAX takes no array into a step, and gives none back, of which its mesh does not divide a side."""
    train = train_of(case)
    if not train or (devices := devices_of(case)) is None or (found := _mesh_of(train, devices)) is None:
        return
    yield from _weights(case, train, devices, found)
    yield from _sequence(case, train, found)


def _weights(case: Case, train: Mapping[str, Any], devices: Devices, found: Mesh) -> Iterator[Problem]:
    logical, arrays = rules(train), models.weights(train)
    if logical is None or arrays is None:
        return
    worst: dict[str, tuple[int, int, tuple[str, ...]]] = {}
    for array in arrays:
        for size, name, axes in zip(array.shape, array.dimensions, assigned(array.axes, logical), strict=True):
            parts = found.over(axes)
            if name and size % parts and parts > worst.get(name, (0,))[0]:
                worst[name] = (parts, size, tuple(axis for axis in axes if found.over([axis]) > 1))
    for name, (parts, size, axes) in worst.items():
        keys = [key_of(axis, level) for axis in axes for level in ("ici", "dcn")]
        path = _path(case, keys)
        if path not in case.user.origins:
            path = ("slice", "topology" if devices.kind == "tpu" else "hosts")
        spelled = " x ".join(f"{axis} {found.over([axis])}" for axis in axes)
        message = (
            f"train.{_path(case, keys)[1]}: {_model(train)}'s {_WORDS[name]}, {size:,}, cannot be shared out over "
            f"{parts} devices ({spelled}); {_remedy(axes, parts, size, devices)}"
        )
        yield from case.across("sharding", path, message, *_SLICE, "train.model_name")


def _remedy(axes: Sequence[str], parts: int, size: int, devices: Devices) -> str:
    most = math.gcd(parts, size)
    if list(axes) == ["fsdp"] and devices.slices == 1:
        return f"set train.ici_fsdp_parallelism: {most} and train.ici_data_parallelism: {parts // most}."
    return f"use a divisor of {size:,}, such as {most}."


def _model(train: Mapping[str, Any]) -> str:
    name = models.name_of(train)
    return "the model" if name == "default" else name


def _sequence(case: Case, train: Mapping[str, Any], found: Mesh) -> Iterator[Problem]:
    keys = models.settings(train)
    length = int(keys["max_target_length"])
    axes = ("tensor_sequence", "context", "context_usp_ulysses")
    parts, context = found.over(axes), found.over(["context"])
    balanced = bool(keys["context_parallel_load_balance"]) and context > 1 and keys["context_sharding"] == "context"
    by = [key for axis in axes for level in ("ici", "dcn") if int(keys.get(key := key_of(axis, level), 1)) != 1]
    if balanced and context % 2:
        message = (
            f"train.{_path(case, by)[1]}: the sequence is shared out over {context} devices, and balancing their load "
            "takes an even number; use one, or set train.context_parallel_load_balance: false."
        )
        yield from case.across("sharding", _path(case, by), message, *_SLICE)
    elif length % (parts * (2 if balanced else 1)):
        halves, unit = (", in two pieces each", 2 * parts) if balanced else ("", parts)
        message = (
            f"train.max_target_length: a sequence of {length:,} tokens cannot be shared out over {parts} devices"
            f"{halves} ({either([f'train.{key}' for key in by], 'and')}); use a multiple of {unit}."
        )
        yield from case.across("sharding", _path(case, ["max_target_length", *by]), message, *_SLICE)


def _heads(case: Case) -> Iterator[Problem]:
    """As maxtext.layers.attentions.Attention: each key and value head serves as many query heads as any other."""
    train = train_of(case)
    if not train or models.settings(train)["attention_type"] in ("mla", "compressed"):
        return
    keys = models.settings(train)
    query, shared = int(keys["base_num_query_heads"]), int(keys["base_num_kv_heads"])
    if shared > 0 and query % shared:
        path = _path(case, ["base_num_kv_heads", "base_num_query_heads"])
        message = f"train.{path[1]}: {query} query heads cannot be served by {shared} key and value heads evenly."
        yield from case.across(
            "heads", path, message, "train.base_num_query_heads", "train.base_num_kv_heads", "train.model_name"
        )


# --- Pipelines ----------------------------------------------------------------------------------------------------


def _pipeline(case: Case) -> Iterator[Problem]:
    """As maxtext.configs.types asserts of a pipeline's stages, layers and microbatches."""
    train = train_of(case)
    keys = models.settings(train)
    sizes = {key: int(keys[key]) for key in ("ici_pipeline_parallelism", "dcn_pipeline_parallelism")}
    if not train or max(sizes.values()) < 2 or min(sizes.values()) < 1:
        return
    devices = devices_of(case)
    if devices and _mesh_of(train, devices) is None:
        return  # told by itself
    stages, path = math.prod(sizes.values()), _path(case, [key for key, size in sizes.items() if size > 1])
    try:
        layers = models.dimensions(train)["num_decoder_layers"]
    except ValueError:
        return
    if int(keys["pipeline_parallel_layers"]) != -1:
        layers = int(keys["pipeline_parallel_layers"])
    elif keys["decoder_block"] == "deepseek":
        layers -= int(keys["first_num_dense_layers"])
    each, repeats = int(keys["num_layers_per_pipeline_stage"]), int(keys["num_pipeline_repeats"])
    others = ("train.model_name", "train.base_num_decoder_layers", "train.pipeline_parallel_layers")
    if layers % (stages * each) or (repeats != -1 and stages * each * repeats != layers):
        times = f" x {repeats} repeats" if repeats != -1 else ""
        message = (
            f"train.{path[1]}: {layers} layers cannot be shared out over {stages} stages of {each}{times}; "
            "change the stages, train.num_layers_per_pipeline_stage, train.num_pipeline_repeats or "
            "train.pipeline_parallel_layers."
        )
        yield from case.across("pipeline", path, message, *others)
    parts = int(keys["num_pipeline_microbatches"])
    least = 2 * stages if keys["pipeline_delay_activation_forwarding"] else stages
    parts = least if parts == -1 else parts
    if parts % stages or parts < least:
        message = (
            f"train.num_pipeline_microbatches: {parts} microbatches are no multiple of {stages} stages"
            + (f", or fewer than {least}" if least > stages else "")
            + "."
        )
        yield from case.across("pipeline", ("train", "num_pipeline_microbatches"), message, f"train.{path[1]}")
    elif devices and (micro := batch(train, devices.total).micro) and micro % parts:
        message = (
            f"train.per_device_batch_size: {micro} sequences a forward pass ({devices.total} devices) cannot be cut "
            f"into {parts} microbatches; change it, or train.num_pipeline_microbatches."
        )
        yield from case.across("pipeline", _path(case, ["per_device_batch_size", path[1]]), message, *_SLICE)


# --- The batch ----------------------------------------------------------------------------------------------------


def _batch(case: Case) -> Iterator[Problem]:
    train = train_of(case)
    if not train or (devices := devices_of(case)) is None or (found := _mesh_of(train, devices)) is None:
        return
    problems = list(_one_batch(case, train, devices, found, "per_device_batch_size"))
    if train.get("eval_per_device_batch_size") and _evaluates(case):
        problems += _one_batch(case, train, devices, found, "eval_per_device_batch_size")
    if not any(problem.severity == ERROR for problem in problems):
        # A batch that MaxText refuses is not called wasteful as well.
        problems = list(_tiles(case, train)) or problems
    yield from problems


def _tiles(case: Case, train: Mapping[str, Any]) -> Iterator[Problem]:
    """As maxtext.configs.types asks, even where there is one tile: a device's tokens must be a whole number then."""
    keys = models.settings(train)
    tokens, tiles = float(keys["per_device_batch_size"]) * int(keys["max_target_length"]), int(keys["num_vocab_tiling"])
    if tiles > 0 and tokens % tiles:
        path = _path(case, ["num_vocab_tiling", "per_device_batch_size", "max_target_length"])
        wanted = "are no whole number" if tiles == 1 else f"cannot be cut into {tiles} tiles"
        message = (
            f"train.{path[1]}: a device's {tokens:,g} tokens (train.per_device_batch_size x train.max_target_length) "
            f"{wanted}."
        )
        yield from case.across("batch", path, message, "train.per_device_batch_size", "train.max_target_length")


def _evaluates(case: Case) -> bool:
    data, train = case.tree["data"], case.tree["train"]
    if data["files"] or data["corpus"]:
        return bool(data["heldOut"]["files"] or data["heldOut"]["fraction"])
    return bool((train.get("eval_interval") or -1) > 0)


def _one_batch(case: Case, train: Mapping[str, Any], devices: Devices, found: Mesh, key: str) -> Iterator[Problem]:
    evaluation = key.startswith("eval")
    keys = models.settings(train)
    sequences: Batch = batch(train, devices.total, evaluation=evaluation)
    value, path = keys[key], _path(case, [key])
    of = f"train.{key}: {value:g} on {devices.total} device{'s' if devices.total != 1 else ''}"
    problem: tuple[str, str] | None = None
    real = bool(case.tree["data"]["files"] or case.tree["data"]["corpus"]) or keys["dataset_type"] != "synthetic"
    # Real data is read in whole sequences for every device (grain_data_processing.make_grain_train_iterator and its
    # like assert it), synthetic data for every part that the batch is shared out into.
    parts = devices.total if real else found.over(batch_axes(train))
    shared = found.over(["data", "fsdp", "fsdp_transpose", "expert"] if rules(train) else ["data", "fsdp"])
    some = f"{sequences.micro} sequence{'s' if sequences.micro != 1 else ''}"
    if sequences.micro < 1:
        problem = ERROR, f"{of} is less than one sequence; raise it to {1 / devices.total:g} at least."
    elif sequences.load % parts:
        problem = (
            ERROR,
            (
                f"{of} is {sequences.load} sequences, which cannot be shared out over {parts} devices; use a whole "
                "number, or a fraction below 1."
            ),
        )
    elif sequences.micro % shared and found.over(["stage"]) == 1:
        axes = f"{of} is {some}, and the mesh shares a batch out over {shared} devices"
        wide = int(keys["max_target_length"]) >= 128
        kernel = keys["attention"] == "flash" or (keys["attention"] == "autoselected" and wide)
        if devices.kind == "tpu" and kernel:
            # attention_op.AttentionOp.tpu_flash_attention asserts it of data and fsdp, JAX's shard_map of the others.
            problem = (
                ERROR,
                (
                    f"{axes}, of which the attention kernel takes equal parts; raise it, or give devices to "
                    "train.ici_tensor_parallelism or train.ici_context_parallelism."
                ),
            )
        else:
            problem = WARNING, f"{axes}; some of them compute on nothing."
    if problem:
        yield from case.across("batch", path, problem[1], *_SLICE, severity=problem[0])


# --- The attention kernel -----------------------------------------------------------------------------------------


def _blocks(case: Case) -> Iterator[Problem]:
    """The blocks in which the TPU's kernel takes a sequence: launcher/splash.py."""
    train = train_of(case)
    keys = models.settings(train)
    if not train or not splash.is_used(keys) or (devices := devices_of(case)) is None or devices.kind != "tpu":
        return
    found = _mesh_of(train, devices)
    length = int(keys["max_target_length"])
    if found is None or length < 1:
        return
    axes = _query_axes(train)
    shards = found.over(axes)
    if shards > 1 and keys["context_parallel_strategy"] != "all_gather":
        return  # the other strategies have kernels of their own
    if next(_sequence(case, train, found), None):
        return  # told by itself
    by = [key for axis in axes for level in ("ici", "dcn") if int(keys.get(key := key_of(axis, level), 1)) != 1]
    others = ("train.max_target_length", "train.attention", *(f"train.{key}" for key in by))
    tokens = f"a sequence of {length:,} tokens"
    if shards > 1:
        tokens = f"a device's {length // shards:,} tokens of {tokens}"
    nearest = splash.nearest_length(keys, length, shards)
    kernel = "the TPU's attention kernel"
    if length % (shards * splash.LANES):
        message = (
            f"train.max_target_length: {kernel} takes {tokens} in blocks of a multiple of {splash.LANES} alone; use "
            f"{nearest or f'a multiple of {shards * splash.LANES}'}, or set train.attention: dot_product."
        )
        yield from case.across("attention", ("train", "max_target_length"), message, *others)
        return
    for fault in splash.faults(keys, length, shards):
        path = _path(case, [*fault.keys, *([fault.of] if fault.of else []), "max_target_length", *by])
        block = f"a block of {fault.other:,}" + (f" (train.{fault.of})" if fault.of != path[1] else "")
        says = {
            "sequence": f"{kernel} cuts {tokens} into equal blocks, and cannot into blocks of {fault.size:,}",
            "unit": f"{kernel} takes blocks of a multiple of {fault.other}, not of {fault.size:,}",
            "parts": f"{kernel} cannot compute {block} in parts of {fault.size:,}",
        }[fault.why]
        alone = fault.keys == (path[1],)
        named = "" if alone else f" ({either([f'train.{key}' for key in fault.keys], 'and')})"
        use = f"use {fault.nearest}" if alone else f"set {'it' if len(fault.keys) == 1 else 'them'} to {fault.nearest}"
        if path[1] == "max_target_length" and nearest:
            use += f", or train.max_target_length to {nearest}"
        message = f"train.{path[1]}: {says}{named}; {use}."
        yield from case.across("attention", path, message, *others, *(f"train.{key}" for key in fault.keys))


def _query_axes(train: Mapping[str, Any]) -> list[str]:
    """The axes of the mesh over which the kernel's queries are shared out, as AttentionOp._context_parallel_size."""
    logical = rules(train)
    (axes,) = assigned(["activation_q_length"], logical) if logical else [()]
    return [axis for axis in axes if axis != "context_usp_ulysses"]


# --- The model ----------------------------------------------------------------------------------------------------


def _contested(case: Case) -> Iterator[Problem]:
    """As maxtext.configs.pyconfig.validate_no_keys_overridden_twice."""
    train = train_of(case)
    if not train:
        return
    name = models.name_of(train)
    for key, own in models.contested(train).items():
        message = (
            f"train.{key} is {_spelled(train[key])}, and MaxText's {name} has {_spelled(own)}; remove it, or set "
            "train.override_model_config: true."
        )
        yield from case.across("model-key", ("train", key), message, "train.override_model_config")
    kind = case.tree["data"]["tokenizer"]["kind"]
    # The trainer always says which kind it is.
    own = models.contested({**train, "tokenizer_type": kind}).get("tokenizer_type")
    if own is not None and "tokenizer_type" not in train:
        message = (
            f"data.tokenizer.kind is {kind}, and MaxText's {name} has {own}; set it and data.tokenizer.path "
            "accordingly, or set train.override_model_config: true."
        )
        yield from case.across("model-key", ("data", "tokenizer", "kind"), message, "train.override_model_config")


def _spelled(value: Any) -> str:
    text = "true" if value is True else "false" if value is False else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _context(case: Case) -> Iterator[Problem]:
    train = train_of(case)
    if not train:
        return
    length, most = int(models.settings(train)["max_target_length"]), models.context(train)
    if most is not None and length > most and _is_given(case, "max_target_length"):
        message = (
            f"train.max_target_length: {length:,} tokens are more than the {most:,} that {models.name_of(train)} was "
            "made for; its positions beyond them are untrained."
        )
        yield from case.across("context", ("train", "max_target_length"), message, "train.model_name", severity=WARNING)


_READS = ("train", "run.kind", "run.command", "slice", "common", "worker.env", "data")

MODEL_RULES: Sequence[tuple[tuple[str, ...], Rule]] = (
    *((_READS, rule) for rule in (_mesh, _sharding, _heads, _pipeline, _batch, _blocks, _contested, _context)),
)
"""Each rule with the keys that it reads."""
