"""Estimate the memory and speed of a config by arithmetic, from another config that was compiled.

The estimates order what a search compiles, and leave out configs that cannot be an improvement. They are never shown.
If a formula is rough, the compiled program corrects it: each part of its memory and of its step is scaled by the
ratio of the formula's results for the two configs. So an error that is the same in both has no effect.

Sizes are bytes per device. Numbers of operations are per device and step. E is the width of the model, H x D
query heads by their width, K key and value heads, M the feed-forward width, V the vocabulary, L the layers, S the
sequence; T = per_device_batch_size x S the tokens of a device. Activations are split over all devices of the mesh,
along the batch or along their own width, so their bytes follow from T alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config.maxtext import models
from launcher.config.maxtext.mesh import Mesh, MeshError, assigned, mesh, rules
from launcher.products.planner.forecast.chip import Chip
from launcher.products.planner.forecast.network import Torus
from launcher.products.planner.forecast.program import Memory
from launcher.products.planner.forecast.step_time import ATTENTION, DCN, HOST, ICI

MEMORY_MARGIN = 1.3
"""A config is still compiled if its memory estimate exceeds the capacity by up to this factor."""
SPEED_DOUBT, SPEED_MARGIN_DIFFERENT_SHARDING = 1.1, 1.3
"""The factor by which a config may be faster than its estimate. The second value applies if its parameters are sharded
differently, or if only one of the two configs offloads to the host's memory."""

_QKV = ("query_proj", "key_proj", "value_proj")
_PROJECTIONS = (*_QKV, "kv_proj", "qkv_proj", "out_proj")
_MLP = ("mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo")
KEPT: Mapping[str, tuple[str, ...]] = {
    "full": (),
    "save_out_proj": ("out_proj",),
    "save_qkv_proj": (*_QKV, "kv_proj", "qkv_proj"),
    "save_dot_except_mlp": _PROJECTIONS,
    "save_dot_with_context_except_mlp": (*_PROJECTIONS, "context"),
    "save_dot_except_mlpwi": (*_PROJECTIONS, "mlpwo"),
    "minimal": (*_PROJECTIONS, *_MLP),
    "minimal_with_quantization": (*_PROJECTIONS, *_MLP),
    "minimal_with_context": (*_PROJECTIONS, *_MLP, "context"),
    "minimal_flash": (*_PROJECTIONS, *_MLP, "context"),
    "minimal_with_context_and_quantization": (*_PROJECTIONS, *_MLP, "context"),
    "qkv_proj_offloaded": (*_QKV, "kv_proj"),
    "minimal_offloaded": (*_PROJECTIONS, *_MLP),
}
"""The tensors that a layer keeps for its backward pass in addition to its input, by MaxText's remat policy
(maxtext.layers.nnx_decoders.get_remat_policy, 0.2.5). The last two policies keep it in the host's memory."""
_OFFLOADED = ("qkv_proj_offloaded", "minimal_offloaded")
TENSORS = ("decoder_layer_input", *_QKV, "context", "out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo")
"""The keys that set what the policy custom does with each tensor of a layer: device, offload, remat."""

_BLOCK = 512  # MaxText's default for every block of the attention kernel
# The axes over which a device gathers its part of a weight before the multiplication.
_GATHERED = ("fsdp", "fsdp_transpose", "context", "context_usp_ulysses")
_TENSOR = ("tensor", "tensor_transpose", "tensor_sequence")
_GRADIENT, _WEIGHT = 4, 2  # bytes: gradients are summed up in float32, weights are multiplied in bfloat16
# The part of a step that overlaps with the links and host transfers, if no compiled step shows it.
_HIDES = 1 / 3
# Measured in the schedule of one model (1 billion parameters, v6e 2x2), with the policy minimal against full.
_STACKED = 6
# The optimizer's passes over the parameters, their gradients and AdamW's two moments: 4 reads, 3 writes.
_OPTIMIZER_BYTES = 7 * 4


@dataclass(frozen=True)
class Layout:
    """A config on its devices, in numbers. The module docstring defines the letters."""

    tokens: float
    """T, for one forward pass."""
    step_tokens: float
    """T, for a whole step. Gradient accumulation makes it larger than `tokens`."""
    parameters: float
    """The parameters on one device."""
    kept: float
    """Bytes kept in HBM for the backward pass: T x L x (E + what the policy keeps) x 2."""
    offloaded: float
    """Bytes kept in the host's memory for the backward pass."""
    work: float
    """Bytes of the largest other temporaries: the logits, T x V x 2; a layer's activations during its backward pass,
    T x 2 x 10 (M + E); and, if tokens are looked up in it, the embedding's gradient before it is sharded, V x E x 4.
    Measured in the compiled programs of tests/products/planner/data/forecast_programs.json."""
    matmul: float
    """FLOPs per weight and token: 2 forward, 4 backward, and 2 for what is recomputed."""
    attention: float
    """FLOPs of the attention kernel: 2 products forward, 5 backward (7 without the fused kernel), 2 recomputed, of
    2 S H D each, in the share of blocks that a causal mask leaves, (n + 1) / 2n of n x n."""
    elementwise: float
    """Numbers of activations, up to a factor: once forward, twice backward, once more if they are recomputed; and
    _STACKED times for each that is kept, because it is written to an array of all layers and read back."""
    gathered: float
    """Bytes of weights that arrive over ICI: two gathers and the gradients' scatter, for the part of each weight that
    is on other devices."""
    reduced: float
    """Bytes of the gradients' sum over the axis data."""
    exchanged: float
    """Bytes of activations over the axes of tensor parallelism: 8 times T x E for a layer, 12 with recomputing."""
    axes: Mapping[str, int]
    """Devices along each axis of the mesh within a slice."""

    def is_like(self, other: Layout) -> bool:
        """Return whether one layout can be estimated from the other reliably: see SPEED_MARGIN_DIFFERENT_SHARDING."""
        return self.axes == other.axes and bool(self.offloaded) == bool(other.offloaded)

    def over(self, names: Sequence[str]) -> int:
        """Return the number of parts within a slice of an array that is split over these axes."""
        return math.prod(self.axes.get(name, 1) for name in names)


@dataclass(frozen=True)
class CompiledReference:
    """The compiler's results for a layout: its memory, and the seconds of its step, including the `hidden` ones."""

    layout: Layout
    memory: Memory
    parts: Mapping[str, float]
    hidden: Mapping[str, float]
    tokens: float
    """The tokens of a step on one device, as MaxText counts them."""


@dataclass(frozen=True)
class Estimate:
    """An estimate.

    `memory` is bytes of HBM, or None if the compiled program does not give them. `rate` is tokens per second per
    device.
    """

    memory: float | None
    seconds: float
    rate: float


def layout(train: Mapping[str, Any], *, slices: int, devices: int) -> Layout | None:
    """Return the layout of MaxText's keys on `slices` of `devices` devices, or None if mesh or model is invalid."""
    try:
        run_mesh, sizes = mesh(train, slices=slices, devices=devices), models.dimensions(train)
    except (MeshError, ValueError):
        return None
    keys = models.settings(train)
    length, layers, width = int(keys["max_target_length"]), sizes["num_decoder_layers"], sizes["emb_dim"]
    tokens = float(keys["per_device_batch_size"]) * length
    accumulated = max(1, int(keys["gradient_accumulation_steps"]))
    widths = _elements(keys, sizes)
    kept, offloaded = _kept(keys)
    number = models.BYTES.get(str(keys.get("dtype") or "bfloat16"), 2)
    saved = kept | offloaded

    again = sum(widths[name] * _inputs(name, keys, sizes) for name in widths if _is_recomputed(name, saved))
    forward = sum(widths[name] * _inputs(name, keys, sizes) for name in widths)
    head = width * sizes["vocab_size"]
    local, gathered, summed = _weights(train, keys, sizes, run_mesh)
    products = 2 + (0 if "context" in saved else 2) + (5 if keys.get("sa_use_fused_bwd_kernel") else 7)
    tensor = run_mesh.over(_TENSOR)
    passes = 8 + (4 if again else 0)
    steps = tokens * accumulated
    tiles = max(1, int(keys["num_vocab_tiling"]))
    looked_up = 0.0 if keys.get("use_iota_embed") else head * _GRADIENT / tensor
    activations = sum(widths.values()) + 4 * width
    return Layout(
        tokens=tokens,
        step_tokens=steps,
        parameters=local,
        kept=tokens * layers * number * sum(widths[name] for name in kept if name in widths),
        offloaded=tokens * layers * number * sum(widths[name] for name in offloaded if name in widths),
        work=2 * tokens * (sizes["vocab_size"] / tiles + 10 * (_mlp(keys, sizes) + width)) + looked_up,
        matmul=2 * steps * (3 * (layers * forward + head) + layers * again),
        attention=2
        * steps
        * layers
        * length
        * sizes["num_query_heads"]
        * sizes["head_dim"]
        * products
        * _done(keys, length),
        elementwise=steps
        * layers
        * (activations * (3 + again / forward) + _STACKED * sum(widths.get(name, 0) for name in saved)),
        gathered=3 * accumulated * gathered,
        reduced=summed,
        exchanged=passes * steps * tensor * layers * width * number * (tensor - 1) / tensor,
        axes=dict(run_mesh.ici),
    )


def estimate(new: Layout, known: CompiledReference, chip: Chip, torus: Torus) -> Estimate:
    """Estimate a layout from the compiled program of another layout on the same chips."""
    seconds = _seconds(new, known, chip, torus)
    rate = known.tokens * new.step_tokens / known.layout.step_tokens / seconds
    return Estimate(_memory(new, known), seconds, rate)


# --- Memory -------------------------------------------------------------------------------------------------------


def _memory(new: Layout, known: CompiledReference) -> float | None:
    """Return the estimated memory, or None if the compiled memory is not known.

    The state is scaled by the parameters on a device. The gradients and the kept activations are computed from their
    sizes. The other compiled temporaries have two parts: the part that the formula explains is scaled by it, and the
    rest is kept.
    """
    old, memory = known.layout, known.memory
    if memory.arguments is None or memory.temporaries is None:
        return None
    state = (memory.total or 0) - memory.temporaries
    rest = max(0.0, memory.temporaries - _certain(old))
    explained = min(1.0, rest / old.work) * new.work
    return state * new.parameters / old.parameters + _certain(new) + explained + max(0.0, rest - old.work)


def _certain(layout: Layout) -> float:
    """Return the bytes of the kept activations and the gradients, plus the part of the gradients that is left when they
    are also split along data. The optimizer's scaling of the gradients takes this much in the compiled programs of the
    tests."""
    return layout.kept + _GRADIENT * layout.parameters * (1 + 1 / layout.over(["data"]))


def _elements(keys: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, float]:
    """Return the numbers per token in each tensor of a layer that can be kept."""
    width, head = sizes["emb_dim"], sizes["head_dim"]
    names = ["mlpwi_0", "mlpwi_1"] if _gates(keys) == 2 else ["mlpwi"]
    return {
        "decoder_layer_input": width,
        "query_proj": sizes["num_query_heads"] * head,
        "key_proj": sizes["num_kv_heads"] * head,
        "value_proj": sizes["num_kv_heads"] * head,
        "context": sizes["num_query_heads"] * head,
        "out_proj": width,
        **dict.fromkeys(names, _mlp(keys, sizes)),
        "mlpwo": width,
    }


def _gates(keys: Mapping[str, Any]) -> int:
    given = keys.get("mlp_activations")
    return len(given) if isinstance(given, list) else 2


def _mlp(keys: Mapping[str, Any], sizes: Mapping[str, int]) -> float:
    """Return M for one token. With experts, it is the sum over all experts that get the token."""
    if sizes["num_experts"] < 2:
        return sizes["mlp_dim"]
    own = sizes["moe_mlp_dim"] if sizes["moe_mlp_dim"] > 0 else sizes["mlp_dim"]
    experts = float(keys.get("num_experts_per_tok") or 1) + float(keys.get("shared_experts") or 0)
    return own * experts * max(1.0, float(keys.get("capacity_factor") or 1))


def _kept(keys: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Return the tensors of a layer that are kept in HBM, and those that are kept in the host's memory."""
    policy = str(keys.get("remat_policy") or "full")
    inputs = {"decoder_layer_input"}
    if policy == "custom":
        where = {name: str(keys.get(name) or ("device" if name in inputs else "remat")) for name in TENSORS}
        return (
            {name for name in TENSORS if where[name] == "device"},
            {name for name in TENSORS if where[name] == "offload"},
        )
    names = set(KEPT.get(policy, ()))
    return (inputs, names) if policy in _OFFLOADED else (inputs | names, set())


# --- Time ---------------------------------------------------------------------------------------------------------


def _seconds(new: Layout, known: CompiledReference, chip: Chip, torus: Torus) -> float:
    """Return the seconds of a step: all scaled parts of the compiled step, and likely waits for overlapped work."""
    old, parts = known.layout, dict(known.parts)
    waited = {way: parts.pop(way, 0.0) for way in (ICI, DCN, HOST)}
    attention = parts.pop(ATTENTION, 0.0)
    matmul = parts.pop("matrix multiplications", 0.0)
    rest = sum(parts.values())
    optimizer = min(rest, old.parameters * _OPTIMIZER_BYTES / chip.hbm)
    busy = (
        matmul * new.matmul / old.matmul
        + attention * new.attention / old.attention
        + (rest - optimizer) * new.elementwise / old.elementwise
        + optimizer * new.parameters / old.parameters
    )
    ways = {
        ICI: (_ici(old, chip, torus), _ici(new, chip, torus)),
        DCN: (old.parameters, new.parameters),
        HOST: (2 * old.offloaded / chip.host, 2 * new.offloaded / chip.host),
    }
    seconds = busy
    for way, (before, after) in ways.items():
        took = waited[way] + known.hidden.get(way, 0.0)
        if way == DCN or (before > 0 and took > 0):
            whole = took * after / before if before else 0.0
            seconds += max(waited[way] / took * whole if took else 0.0, whole - busy)
        else:
            seconds += max(0.0, after - busy * _HIDES)
    return seconds


def _ici(layout: Layout, chip: Chip, torus: Torus) -> float:
    """Return the seconds of the collectives within a slice, from the bytes that must arrive over a chip's links."""
    return (
        layout.gathered / _links(layout.over(_GATHERED), torus)
        + layout.reduced / _links(layout.over(["data"]), torus)
        + layout.exchanged / _links(layout.over(_TENSOR), torus)
    ) / chip.ici


def _links(devices: int, torus: Torus) -> int:
    """Return the number of links over which a chip receives from so many devices: those of the dimensions they span."""
    links, reached = 0, 1
    for size, ring in sorted(zip(torus.size, torus.wraps, strict=False), reverse=True):
        if reached < devices and size > 1:
            links, reached = links + (2 if ring else 1), reached * size
    return max(1, links)


def _inputs(name: str, keys: Mapping[str, Any], sizes: Mapping[str, int]) -> float:
    """Return the numbers multiplied per output number: for a projection the size of its input, for other tensors 0."""
    if name in ("decoder_layer_input", "context"):
        return 0
    if name == "out_proj":
        return sizes["num_query_heads"] * sizes["head_dim"]
    return _mlp(keys, sizes) if name == "mlpwo" else sizes["emb_dim"]


def _is_recomputed(name: str, saved: set[str]) -> bool:
    """Return whether a tensor is recomputed. A layer's last product is not, because the layer does not use it."""
    return name not in saved and name != "mlpwo"


def _done(keys: Mapping[str, Any], length: int) -> float:
    """Return the share of the blocks of queries and keys that a causal mask leaves."""
    block = int(keys.get("sa_block_q") or _BLOCK)
    count = max(1, math.ceil(length / block))
    return (count + 1) / (2 * count)


def _weights(
    train: Mapping[str, Any], keys: Mapping[str, Any], sizes: Mapping[str, int], run_mesh: Mesh
) -> tuple[float, float, float]:
    """Return parameters per device, bytes of weights it gathers per pass, and bytes of its gradients' sum."""
    logical = rules(train) or rules({}) or []
    local = gathered = 0.0
    for weight in models.weights(train) or _assumed(keys, sizes):
        over = assigned(weight.axes, logical)
        own = weight.copies * math.prod(weight.shape) / run_mesh.over([axis for axes in over for axis in axes])
        group = run_mesh.over([axis for axes in over for axis in axes if axis in _GATHERED])
        local += own
        gathered += own * (group - 1) * _WEIGHT
    copies = run_mesh.ici.get("data", 1)
    return local, gathered, 2 * local * _GRADIENT * (copies - 1) / copies


def _assumed(keys: Mapping[str, Any], sizes: Mapping[str, int]) -> list[models.Weight]:
    """Return the weights of a plain decoder of these sizes, for a model that is not in the table of models."""
    width, mlp, layers = sizes["emb_dim"], sizes["mlp_dim"], sizes["num_decoder_layers"]
    query, shared = sizes["num_query_heads"] * sizes["head_dim"], sizes["num_kv_heads"] * sizes["head_dim"]
    experts = max(1, sizes["num_experts"])

    def of(axes: str, shape: tuple[int, int], copies: int) -> models.Weight:
        return models.Weight(tuple(axes.split()), shape, ("", ""), copies)

    return [
        of("embed mlp", (width, mlp), _gates(keys) * layers * experts),
        of("mlp embed", (mlp, width), layers * experts),
        of("embed_attn q_heads", (width, query), layers),
        of("embed_attn kv_heads", (width, shared), 2 * layers),
        of("heads embed_attn", (query, width), layers),
        of("embed_vocab vocab", (width, sizes["vocab_size"]), 2),
    ]
