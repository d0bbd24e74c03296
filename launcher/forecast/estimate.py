"""What a config would take and how fast it would be, by arithmetic, beside one that was compiled.

It orders what a search compiles and leaves out what cannot be any good; its numbers are never shown. Where a formula
is rough, the compiled program puts it right: each part of its memory and of its step is scaled by what the formula
gives for the two configs, so what the formula gets wrong in both alike does not matter.

Sizes are bytes of one device, numbers of operations those of one device in one step. E is the width of the model, H x D
query heads by their width, K key and value heads, M the feed-forward width, V the vocabulary, L the layers, S the
sequence; T = per_device_batch_size x S the tokens of a device. Along the batch or along their own width activations are
shared out over all devices of the mesh, so that their bytes follow from T alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config.maxtext import models
from launcher.config.maxtext.mesh import Mesh, MeshError, assigned, mesh, rules
from launcher.forecast.chip import Chip
from launcher.forecast.network import Torus
from launcher.forecast.program import Memory
from launcher.forecast.step_time import ATTENTION, DCN, HOST, ICI

MEMORY_MARGIN = 1.3
"""An estimate of the memory that is over by so much still gets its compile."""
SPEED_DOUBT, SPEED_MARGIN_DIFFERENT_SHARDING = 1.1, 1.3
"""A config may be faster than its estimate by so much; by more where its parameters lie differently, or where only one
of the two has something wait in the host's memory."""

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
"""What a layer keeps for its backward pass by MaxText's remat policies (maxtext.layers.nnx_decoders.get_remat_policy,
0.2.5), beside its input; with the two at the end it waits in the host's memory."""
_OFFLOADED = ("qkv_proj_offloaded", "minimal_offloaded")
TENSORS = ("decoder_layer_input", *_QKV, "context", "out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo")
"""The keys that say of each tensor of a layer what the policy custom does with it: device, offload, remat."""

_BLOCK = 512  # MaxText's default for every block of the attention kernel
# Axes over which a device's part of a weight is gathered before it is multiplied.
_GATHERED = ("fsdp", "fsdp_transpose", "context", "context_usp_ulysses")
_TENSOR = ("tensor", "tensor_transpose", "tensor_sequence")
_GRADIENT, _WEIGHT = 4, 2  # bytes: gradients are summed up in float32, weights are multiplied in bfloat16
# The part of a step beside which links and the way to the host work, where no compiled step tells.
_HIDES = 1 / 3
# Measured in the schedule of one model (1 billion parameters, v6e 2x2), with the policy minimal against full.
_STACKED = 6
# Passes over the parameters, their gradients and AdamW's two moments that the optimizer makes: 4 read, 3 written.
_OPTIMIZER_BYTES = 7 * 4


@dataclass(frozen=True)
class Layout:
    """A config on its devices, in numbers; see the module for the letters."""

    tokens: float
    """T, of one forward pass."""
    step_tokens: float
    """Those of a whole step, which gradient accumulation makes more."""
    parameters: float
    """That lie on one device."""
    kept: float
    """Bytes that wait for the backward pass in HBM: T x L x (E + what the policy keeps) x 2."""
    offloaded: float
    """The same in the host's memory."""
    work: float
    """Bytes of the largest temporaries beside: the logits, T x V x 2, a layer's activations while its backward pass is
    made, T x 2 x 10 (M + E), and, where tokens are looked up in it, the embedding's gradient before it is shared out,
    V x E x 4. Measured in the compiled programs of tests/unit/data/forecast_programs.json."""
    matmul: float
    """FLOPs: 2 for each weight and token forward, 4 backward, and 2 for what is recomputed."""
    attention: float
    """FLOPs of the attention kernel: 2 products forward, 5 backward (7 without the fused kernel), 2 recomputed, of
    2 S H D each, in the blocks that a causal mask leaves, (n + 1) / 2n of n x n."""
    elementwise: float
    """Numbers of activations, up to a factor: once forward, twice backward, once again where they are recomputed; and
    _STACKED times each that is kept, for it goes into an array of all layers and comes back from there."""
    gathered: float
    """Bytes that come over ICI with the weights: two gatherings and the gradients' scattering, of each weight's part
    that other devices have."""
    reduced: float
    """Bytes of the gradients' sum over the axis data."""
    exchanged: float
    """Bytes of activations over the axes of tensor parallelism: 8 times T x E for a layer, 12 with recomputing."""
    axes: Mapping[str, int]
    """Devices along those of the mesh within a slice."""

    def is_like(self, other: Layout) -> bool:
        """Whether an estimate of one from the other is sure: see UNLIKE_DOUBT."""
        return self.axes == other.axes and bool(self.offloaded) == bool(other.offloaded)

    def over(self, names: Sequence[str]) -> int:
        """How many parts there are within a slice of what is shared out over these axes."""
        return math.prod(self.axes.get(name, 1) for name in names)


@dataclass(frozen=True)
class CompiledReference:
    """What the compiler said of a layout: its memory, and the seconds of its step, those that were `hidden` too."""

    layout: Layout
    memory: Memory
    parts: Mapping[str, float]
    hidden: Mapping[str, float]
    tokens: float
    """Of a step on one device, as MaxText counts them."""


@dataclass(frozen=True)
class Estimate:
    """`memory`: bytes of HBM, None where the compiled program does not tell; `rate`: tokens a second of one device."""

    memory: float | None
    seconds: float
    rate: float


def layout(train: Mapping[str, Any], *, slices: int, devices: int) -> Layout | None:
    """Of the keys for MaxText on `slices` of `devices` devices each; None where there is no such mesh or model."""
    try:
        found, sizes = mesh(train, slices=slices, devices=devices), models.dimensions(train)
    except (MeshError, ValueError):
        return None
    keys = models.settings(train)
    length, layers, width = int(keys["max_target_length"]), sizes["num_decoder_layers"], sizes["emb_dim"]
    tokens = float(keys["per_device_batch_size"]) * length
    accumulated = max(1, int(keys["gradient_accumulation_steps"]))
    each = _elements(keys, sizes)
    kept, offloaded = _kept(keys)
    number = models.BYTES.get(str(keys.get("dtype") or "bfloat16"), 2)
    saved = kept | offloaded

    again = sum(each[name] * _inputs(name, keys, sizes) for name in each if _is_recomputed(name, saved))
    forward = sum(each[name] * _inputs(name, keys, sizes) for name in each)
    head = width * sizes["vocab_size"]
    local, gathered, summed = _weights(train, keys, sizes, found)
    products = 2 + (0 if "context" in saved else 2) + (5 if keys.get("sa_use_fused_bwd_kernel") else 7)
    tensor = found.over(_TENSOR)
    passes = 8 + (4 if again else 0)
    steps = tokens * accumulated
    tiles = max(1, int(keys["num_vocab_tiling"]))
    looked_up = 0.0 if keys.get("use_iota_embed") else head * _GRADIENT / tensor
    activations = sum(each.values()) + 4 * width
    return Layout(
        tokens=tokens,
        step_tokens=steps,
        parameters=local,
        kept=tokens * layers * number * sum(each[name] for name in kept if name in each),
        offloaded=tokens * layers * number * sum(each[name] for name in offloaded if name in each),
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
        * (activations * (3 + again / forward) + _STACKED * sum(each.get(name, 0) for name in saved)),
        gathered=3 * accumulated * gathered,
        reduced=summed,
        exchanged=passes * steps * tensor * layers * width * number * (tensor - 1) / tensor,
        axes=dict(found.ici),
    )


def estimate(new: Layout, known: CompiledReference, chip: Chip, torus: Torus) -> Estimate:
    """Of a layout, from what was compiled of another on the same chips."""
    seconds = _seconds(new, known, chip, torus)
    rate = known.tokens * new.step_tokens / known.layout.step_tokens / seconds
    return Estimate(_memory(new, known), seconds, rate)


# --- Memory -------------------------------------------------------------------------------------------------------


def _memory(new: Layout, known: CompiledReference) -> float | None:
    """The state by the parameters that lie on a device, the gradients and what is kept by their sizes; of the rest of
    the compiled temporaries what the formula explains as the formula has it, and what it does not as it is."""
    old, memory = known.layout, known.memory
    if memory.arguments is None or memory.temporaries is None:
        return None
    state = (memory.total or 0) - memory.temporaries
    rest = max(0.0, memory.temporaries - _certain(old))
    explained = min(1.0, rest / old.work) * new.work
    return state * new.parameters / old.parameters + _certain(new) + explained + max(0.0, rest - old.work)


def _certain(one: Layout) -> float:
    """What is kept, the gradients, and once more of them what is left when they are shared out along data, too: so much
    the optimizer's scaling of them takes in the compiled programs of the tests."""
    return one.kept + _GRADIENT * one.parameters * (1 + 1 / one.over(["data"]))


def _elements(keys: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, float]:
    """Numbers of one token in each tensor of a layer that can be kept."""
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
    """M of one token: with experts, that of all who get it."""
    if sizes["num_experts"] < 2:
        return sizes["mlp_dim"]
    own = sizes["moe_mlp_dim"] if sizes["moe_mlp_dim"] > 0 else sizes["mlp_dim"]
    experts = float(keys.get("num_experts_per_tok") or 1) + float(keys.get("shared_experts") or 0)
    return own * experts * max(1.0, float(keys.get("capacity_factor") or 1))


def _kept(keys: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The tensors of a layer that are kept in HBM, and those in the host's memory."""
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
    """Every part of the compiled step, scaled; of what goes on beside, what is likely to be waited for."""
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


def _ici(one: Layout, chip: Chip, torus: Torus) -> float:
    """Seconds of the collectives within a slice, by the bytes that have to come in over a chip's links."""
    return (
        one.gathered / _links(one.over(_GATHERED), torus)
        + one.reduced / _links(one.over(["data"]), torus)
        + one.exchanged / _links(one.over(_TENSOR), torus)
    ) / chip.ici


def _links(devices: int, torus: Torus) -> int:
    """Over which a chip gets what so many devices send: those of as many dimensions of the slice as it takes them."""
    links, reached = 0, 1
    for size, ring in sorted(zip(torus.size, torus.wraps, strict=False), reverse=True):
        if reached < devices and size > 1:
            links, reached = links + (2 if ring else 1), reached * size
    return max(1, links)


def _inputs(name: str, keys: Mapping[str, Any], sizes: Mapping[str, int]) -> float:
    """Numbers that are multiplied for each that comes out: of a projection those of its input, of others none."""
    if name in ("decoder_layer_input", "context"):
        return 0
    if name == "out_proj":
        return sizes["num_query_heads"] * sizes["head_dim"]
    return _mlp(keys, sizes) if name == "mlpwo" else sizes["emb_dim"]


def _is_recomputed(name: str, saved: set[str]) -> bool:
    """The last product of a layer is no one's input within it, so it is not made again."""
    return name not in saved and name != "mlpwo"


def _done(keys: Mapping[str, Any], length: int) -> float:
    """The part of all blocks of queries and keys that a causal mask leaves."""
    block = int(keys.get("sa_block_q") or _BLOCK)
    count = max(1, math.ceil(length / block))
    return (count + 1) / (2 * count)


def _weights(
    train: Mapping[str, Any], keys: Mapping[str, Any], sizes: Mapping[str, int], found: Mesh
) -> tuple[float, float, float]:
    """Parameters on a device; bytes of the weights that it has to gather for one pass; bytes of its gradients' sum."""
    logical = rules(train) or rules({}) or []
    local = gathered = 0.0
    for weight in models.weights(train) or _assumed(keys, sizes):
        over = assigned(weight.axes, logical)
        own = weight.copies * math.prod(weight.shape) / found.over([axis for axes in over for axis in axes])
        group = found.over([axis for axes in over for axis in axes if axis in _GATHERED])
        local += own
        gathered += own * (group - 1) * _WEIGHT
    copies = found.ici.get("data", 1)
    return local, gathered, 2 * local * _GRADIENT * (copies - 1) / copies


def _assumed(keys: Mapping[str, Any], sizes: Mapping[str, int]) -> list[models.Weight]:
    """The weights of a plain decoder of these sizes, where the table of models does not have those of this one."""
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
