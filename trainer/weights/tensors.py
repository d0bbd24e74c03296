"""The tables of tensors: which part of which MaxText array is which tensor in Hugging Face format, and how it changes.

MaxText's own converter (maxtext.checkpoint_conversion) has the same names and hooks for some sizes of some families,
and needs the whole model in memory. tests/trainer/test_weights_tables.py compares the tables with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.weights.model import Model

_PREFIX = "params.params."
"""The parameters in a checkpoint: MaxText's item `params`, and Flax's collection `params` inside it."""


@dataclass(frozen=True)
class Row:
    """A row of a table: a part of a MaxText array, the tensor, its kind, and its dimensions (input | output).

    The kinds are: matrix (inputs first in MaxText, outputs first in Hugging Face), query and key (matrices with rotary
    embedding), experts (a matrix per expert), norm, and embedding.
    """

    array: str
    tensor: str
    kind: str
    dimensions: str


@dataclass(frozen=True)
class Tensor:
    """A tensor in Hugging Face format, and the part of a MaxText array that it is: `layer` is the position on the axis
    of layers, `expert` that on the axis of experts, or None if the array has no such axis."""

    name: str
    shape: tuple[int, ...]
    layer: int | None = None
    expert: int | None = None


@dataclass(frozen=True)
class Array:
    """A MaxText array: its name in the checkpoint, its shape, the kind and shape of a part, and its tensors in the
    order of experts, then layers."""

    name: str
    shape: tuple[int, ...]
    kind: str
    part: tuple[int, ...]
    inputs: int
    tensors: tuple[Tensor, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class _Block:
    """Layers whose parameters have the same place in MaxText's tree: stacked in one array, or one layer."""

    prefix: str
    suffix: str
    layers: tuple[int, ...]
    stacked: bool


_ATTENTION = (
    Row("self_attention{s}.query.kernel", "self_attn.q_proj.weight", "query", "emb | heads head_dim"),
    Row("self_attention{s}.key.kernel", "self_attn.k_proj.weight", "key", "emb | kv_heads head_dim"),
    Row("self_attention{s}.value.kernel", "self_attn.v_proj.weight", "matrix", "emb | kv_heads head_dim"),
    Row("self_attention{s}.out.kernel", "self_attn.o_proj.weight", "matrix", "heads head_dim | emb"),
)
_QK_NORM = (
    Row("self_attention.query_norm.scale", "self_attn.q_norm.weight", "norm", "head_dim"),
    Row("self_attention.key_norm.scale", "self_attn.k_norm.weight", "norm", "head_dim"),
)
_MLP = (
    Row("mlp{s}.wi_0.kernel", "mlp.gate_proj.weight", "matrix", "emb | mlp"),
    Row("mlp{s}.wi_1.kernel", "mlp.up_proj.weight", "matrix", "emb | mlp"),
    Row("mlp{s}.wo.kernel", "mlp.down_proj.weight", "matrix", "mlp | emb"),
)
_NORMS = (
    Row("pre_self_attention_layer_norm.scale", "input_layernorm.weight", "norm", "emb"),
    Row("post_self_attention_layer_norm.scale", "post_attention_layernorm.weight", "norm", "emb"),
)
_GEMMA_NORMS = (
    Row("pre_self_attention_norm{s}.scale", "input_layernorm.weight", "norm", "emb"),
    Row("post_self_attention_norm{s}.scale", "post_attention_layernorm.weight", "norm", "emb"),
    Row("pre_ffw_norm{s}.scale", "pre_feedforward_layernorm.weight", "norm", "emb"),
    Row("post_ffw_norm{s}.scale", "post_feedforward_layernorm.weight", "norm", "emb"),
)
_MIXTRAL_MLP = (
    Row("MoeBlock_0.gate.kernel", "block_sparse_moe.gate.weight", "matrix", "emb | experts"),
    Row("MoeBlock_0.wi_0", "block_sparse_moe.experts.{e}.w1.weight", "experts", "emb | mlp"),
    Row("MoeBlock_0.wi_1", "block_sparse_moe.experts.{e}.w3.weight", "experts", "emb | mlp"),
    Row("MoeBlock_0.wo", "block_sparse_moe.experts.{e}.w2.weight", "experts", "mlp | emb"),
)
_QWEN_EXPERTS = (
    Row("moe_block.gate.kernel", "mlp.gate.weight", "matrix", "emb | experts"),
    Row("moe_block.wi_0", "mlp.experts.{e}.gate_proj.weight", "experts", "emb | mlp"),
    Row("moe_block.wi_1", "mlp.experts.{e}.up_proj.weight", "experts", "emb | mlp"),
    Row("moe_block.wo", "mlp.experts.{e}.down_proj.weight", "experts", "mlp | emb"),
)
LAYER_ROWS = {
    "llama": (*_ATTENTION, *_MLP, *_NORMS),
    "mistral": (*_ATTENTION, *_MLP, *_NORMS),
    "mixtral": (*_ATTENTION, *_MIXTRAL_MLP, *_NORMS),
    "gemma2": (*_ATTENTION, *_MLP, *_GEMMA_NORMS),
    "gemma3_text": (*_ATTENTION, *_QK_NORM, *_MLP, *_GEMMA_NORMS),
    "qwen3": (*_ATTENTION, *_QK_NORM, *_MLP, *_NORMS),
    "qwen3_moe": (*_ATTENTION, *_QK_NORM, *_QWEN_EXPERTS, *_NORMS),
}
"""The rows of one layer, by family."""

_MODEL_ROWS = (
    Row("token_embedder.embedding", "model.embed_tokens.weight", "embedding", "vocab emb"),
    Row("decoder.decoder_norm.scale", "model.norm.weight", "norm", "emb"),
)
_LOGITS = Row("decoder.logits_dense.kernel", "lm_head.weight", "matrix", "emb | vocab")


def arrays(model: Model) -> list[Array]:
    """Return all arrays of a model's parameters, in the order in which they are written."""
    rows = _MODEL_ROWS if model.tied else (*_MODEL_ROWS, _LOGITS)
    made = [_array(model, row, row.array, ((row.tensor, None),), stacked=False) for row in rows]
    for block in _blocks(model):
        for row in LAYER_ROWS[model.family.name]:
            name = f"{block.prefix}.{row.array.format(s=block.suffix)}"
            places = tuple((f"model.layers.{layer}.{row.tensor}", at) for at, layer in enumerate(block.layers))
            made.append(_array(model, row, name, places, stacked=block.stacked))
    return made


def parameters(model: Model) -> int:
    return sum(array.elements for array in arrays(model))


def _array(model: Model, row: Row, name: str, places: Sequence[tuple[str, int | None]], *, stacked: bool) -> Array:
    inputs, _, outputs = row.dimensions.partition("|")
    first = [model.sizes[word] for word in inputs.split()]
    part = (*first, *(model.sizes[word] for word in outputs.split()))
    shape = (math.prod(part[len(first) :]), math.prod(first)) if outputs else part
    experts = range(model.experts) if row.kind == "experts" else [None]
    tensors = tuple(
        Tensor(tensor.format(e=expert), shape, at if stacked else None, expert)
        for expert in experts
        for tensor, at in places
    )
    # MaxText stacks layers on axis 1 (param_scan_axis), after the experts.
    whole = (model.experts, *part) if row.kind == "experts" else part
    if stacked:
        whole = (whole[0], len(places), *whole[1:])
    return Array(_PREFIX + name, whole, row.kind, part, len(first), tensors)


def _blocks(model: Model) -> Iterator[_Block]:
    if model.family.name == "gemma2":
        for offset, suffix in enumerate(("_local", "_global")):
            if model.scanned:
                yield _Block("decoder.layers", suffix, tuple(range(offset, model.layers, 2)), stacked=True)
                continue
            for index in range(model.blocks):
                yield _Block(f"decoder.layers_{index}", suffix, (2 * index + offset,), stacked=False)
    elif not model.scanned:
        for index in range(model.layers):
            yield _Block(f"decoder.layers_{index}", "", (index,), stacked=False)
    elif model.family.name == "gemma3_text":
        rest = model.layers % 6
        whole = model.layers - rest
        for index in range(6):
            yield _Block(f"decoder.layers.layers_{index}", "", tuple(range(index, whole, 6)), stacked=True)
        for index in range(rest):
            yield _Block(f"decoder.layers_remainder.layers_{index}", "", (whole + index,), stacked=False)
    else:
        yield _Block("decoder.layers", "", tuple(range(model.layers)), stacked=True)


def to_hugging_face(part: np.ndarray[Any, Any], array: Array, model: Model) -> np.ndarray[Any, Any]:
    """Return a part of an array as a tensor in Hugging Face format: a view if possible. `part` may be overwritten."""
    match array.kind:
        case "norm":
            return _in_float32(part, lambda values: np.subtract(values, 1, out=values)) if model.is_gemma else part
        case "embedding":
            return _scaled(part, model.embedding_scale)
        case "query":
            part = _halves(_scaled(part, model.query_scale), model)
        case "key":
            part = _halves(part, model)
    inputs = math.prod(array.part[: array.inputs])
    return part.reshape(inputs, -1).T


def to_maxtext(tensor: np.ndarray[Any, Any], array: Array, model: Model) -> np.ndarray[Any, Any]:
    """Return a tensor in Hugging Face format as the part of an array that it is. `tensor` may be overwritten."""
    match array.kind:
        case "norm":
            return _in_float32(tensor, lambda values: np.add(values, 1, out=values)) if model.is_gemma else tensor
        case "embedding":
            return _scaled(tensor, 1 / model.embedding_scale)
    part = tensor.T.reshape(array.part)
    match array.kind:
        case "query":
            return _scaled(_pairs(part, model), 1 / model.query_scale)
        case "key":
            return _pairs(part, model)
    return part


def _scaled(values: np.ndarray[Any, Any], factor: float) -> np.ndarray[Any, Any]:
    """Multiply by a factor, or divide by its inverse if it is a fraction: both ways then use the same float32 number.

    The way back gives the same bits if the factor is a power of two, else a number that is at most one unit in the last
    place away.
    """
    if factor == 1:
        return values
    if factor > 1:
        number = np.float32(factor)
        return _in_float32(values, lambda each: np.multiply(each, number, out=each))
    number = np.float32(1 / factor)
    return _in_float32(values, lambda each: np.divide(each, number, out=each))


def _in_float32(values: np.ndarray[Any, Any], change: Any) -> np.ndarray[Any, Any]:
    """Apply a change to float32 numbers. Other types are converted, and converted back."""
    if values.dtype == np.float32 and values.flags.writeable:
        return change(values)  # type: ignore[no-any-return]
    return change(values.astype(np.float32)).astype(values.dtype)  # type: ignore[no-any-return]


def _halves(part: np.ndarray[Any, Any], model: Model) -> np.ndarray[Any, Any]:
    """Reorder heads for a rotary embedding of halves. Llama 3.1 in MaxText rotates pairs of neighbors."""
    return np.concatenate((part[..., ::2], part[..., 1::2]), axis=-1) if model.llama31_rotary else part


def _pairs(part: np.ndarray[Any, Any], model: Model) -> np.ndarray[Any, Any]:
    if not model.llama31_rotary:
        return part
    first, second = np.split(part, 2, axis=-1)
    pairs: np.ndarray[Any, Any] = np.stack((first, second), axis=-1).reshape(part.shape)
    return pairs
