"""MaxText's models by their sizes: what `train` makes of one, how many parameters it has, how large its state is.

All of it is arithmetic on launcher/config/maxtext/models.json, which `make keys` writes from the installed MaxText;
nothing here imports MaxText. Functions take `train`, the values' own map of MaxText's keys, and answer None where the
table does not know: say nothing then.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SCALED = {
    "emb_dim": "base_emb_dim",
    "num_query_heads": "base_num_query_heads",
    "num_kv_heads": "base_num_kv_heads",
    "mlp_dim": "base_mlp_dim",
    "moe_mlp_dim": "base_moe_mlp_dim",
    "num_decoder_layers": "base_num_decoder_layers",
}
"""Dimensions that MaxText scales by global_parameter_scale, and the key of each."""

DIMENSIONS = {**SCALED, "head_dim": "head_dim", "vocab_size": "vocab_size", "num_experts": "num_experts"}
"""Every dimension that arrays are counted by, and MaxText's key for it."""

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float4_e2m1fn": 0.5}
"""Bytes a number, by MaxText's names of types."""

MOMENTS = {"adamw": 2, "adam_pax": 2, "sgd": 0}
"""Numbers that an optimizer keeps for each parameter. Muon keeps one or two, by the array."""

# Keys of the models' files that change no array's shape; any other one does, or may.
_SHAPELESS = re.compile(
    r"rope_.*|.*timescale.*|.*_epsilon|.*dropout.*|.*soft_cap|tokenizer_type|.*_target_length|dataset_\w+|adam_\w+|"
    r"opt_type|dtype|weight_dtype|sparse_matmul|megablox|attention|float32_\w+|mscale|beta_\w+|load_balance_\w+|"
    r"routed_score_func|routed_scaling_factor|norm_topk_prob|num_experts_per_tok|use_iota_embed|scan_layers|"
    r"normalize_embedding_logits|gradient_clipping_threshold|sliding_window_size|checkpoint_period|eval_\w+|"
    r"logits_dot_in_fp32|\w*max_position_embeddings|capacity_factor|mlp_activations_limit|\w+_for_vit|"
    r"\w+_for_audio|image_placeholder|target_eval_loss|shard_mode|n_routing_groups|topk_routing_group"
)
# Keys that no model's file sets and that change what arrays there are.
_SHAPING = {
    *("fused_mlp", "mtp_num_layers", "lora", "prefuse_moe_weights", "use_multimodal", "use_audio", "engram_layers"),
    *("enable_diloco", "quantization", "share_kv_projections", "fused_qkv", "trainable_parameters_mask"),
}

# The context that a model was published for, in tokens, by its makers' model cards; MaxText's own files say it of few.
_PUBLISHED_CONTEXT = {
    **dict.fromkeys(("llama2-7b", "llama2-13b", "llama2-70b"), 4096),
    **dict.fromkeys(("llama3-8b", "llama3-70b"), 8192),
    **dict.fromkeys(("llama3.1-8b", "llama3.1-70b", "llama3.1-405b", "llama3.3-70b"), 131_072),
    **dict.fromkeys(("gemma-2b", "gemma-7b", "gemma2-2b", "gemma2-9b", "gemma2-27b"), 8192),
    **dict.fromkeys(("gemma3-4b", "gemma3-12b", "gemma3-27b"), 131_072),
    **dict.fromkeys(("mistral-7b", "mixtral-8x7b"), 32_768),
    "mixtral-8x22b": 65_536,
}


@cache
def table() -> dict[str, Any]:
    """The table of MaxText's models, made by `python -m tests.maxtext_tables.keys`."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "models.json").read_bytes())
    return found


def name_of(train: Mapping[str, Any]) -> str:
    """The model's name as MaxText's files have it; "default" where none is given."""
    return str(train.get("model_name") or "default").replace("-Instruct", "")


def row_of(train: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model's row in the table; empty where MaxText has no such model."""
    row: Mapping[str, Any] = table()["models"].get(name_of(train), {})
    return row


def settings(train: Mapping[str, Any]) -> dict[str, Any]:
    """What MaxText takes each key for: base.yml's value, over it the model's own, over that `train`'s.

    Only the keys of base.yml that this module and mesh.py read. A null in `train` is a key that is not given.
    """
    given = {key: value for key, value in train.items() if value is not None}
    return {**table()["defaults"], **row_of(train).get("keys", {}), **given}


def contested(train: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `train` that the model's own file sets otherwise, with the file's values: MaxText refuses them.

    None of them where override_model_config is set.
    """
    if train.get("override_model_config"):
        return {}
    own = row_of(train).get("keys", {})
    return {key: own[key] for key, value in train.items() if value is not None and key in own and own[key] != value}


def dimensions(train: Mapping[str, Any]) -> dict[str, int]:
    """The model's dimensions by MaxText's names (emb_dim, num_kv_heads …), after global_parameter_scale.

    Raises ValueError where that is no power of two.
    """
    keys = settings(train)
    scale = int(keys["global_parameter_scale"])
    if scale < 1 or scale & (scale - 1):
        raise ValueError("global_parameter_scale must be a power of two")
    # As maxtext.configs.types.get_individual_scales: each third doubling makes all four larger.
    base, rest = divmod(scale.bit_length() - 1, 3)
    doublings = {
        "emb_dim": base + (rest > 1),
        "num_decoder_layers": base,
        **dict.fromkeys(("num_query_heads", "num_kv_heads", "mlp_dim", "moe_mlp_dim"), base + (rest > 0)),
    }
    return {name: int(keys[key]) << doublings.get(name, 0) for name, key in DIMENSIONS.items()}


@dataclass(frozen=True)
class Weight:
    """Arrays of one kind: the logical names of their sides, which MaxText's rules map to the mesh, and their sizes.

    `dimensions` names what each size is ("emb_dim"), or is "" where it is a size of its own. `copies` counts them over
    all layers; the side of the layers that MaxText scans over is left out.
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    dimensions: tuple[str, ...]
    copies: int

    @property
    def parameters(self) -> int:
        return self.copies * math.prod(self.shape)


def weights(train: Mapping[str, Any]) -> list[Weight] | None:
    """The arrays that the model is made of; None where the table does not tell."""
    row = row_of(train)
    if row.get("weights") is None or any(_reshapes(train, key) for key in train):
        return None
    try:
        sizes = dimensions(train)
        published = dimensions({"model_name": train.get("model_name")})
    except ValueError:
        return None
    if sizes != published and not row["scales"]:
        return None
    found = []
    for axes, shape, copies, per_layer in row["weights"]:
        words = shape.split()
        sides = tuple(int(word) if word.isdigit() else sizes[word] for word in words)
        named = tuple("" if word.isdigit() else word for word in words)
        count = copies * (sizes["num_decoder_layers"] if per_layer else 1)
        found.append(Weight(tuple(axes.split()), sides, named, count))
    return found


def _reshapes(train: Mapping[str, Any], key: str) -> bool:
    """Whether a key changes what arrays the model has, in a way that the table does not follow."""
    value = train[key]
    if value is None or key in DIMENSIONS.values() or key in ("model_name", "global_parameter_scale"):
        return False
    if key in _SHAPING:
        return bool(value)
    if key not in _structural() or _SHAPELESS.fullmatch(key):
        return False
    before = settings({"model_name": train.get("model_name")})
    return key not in before or before[key] != value


@cache
def _structural() -> frozenset[str]:
    """The keys that some model's own file sets."""
    return frozenset(key for row in table()["models"].values() for key in row["keys"])


def parameters(train: Mapping[str, Any]) -> int | None:
    """How many parameters the model has, as MaxText counts them; None where the table does not tell."""
    found = weights(train)
    return None if found is None else sum(weight.parameters for weight in found)


def weight_bytes(train: Mapping[str, Any]) -> float | None:
    """Bytes of the parameters alone, over all devices."""
    count, size = parameters(train), BYTES.get(str(settings(train)["weight_dtype"]))
    return None if count is None or size is None else count * size


def checkpoint_bytes(train: Mapping[str, Any]) -> float | None:
    """Bytes of one checkpoint before compression: the parameters, and what the optimizer keeps for each.

    AdamW's first moment is of mu_dtype and its second of the weights' type; adam_pax has both of the weights' type.
    """
    keys = settings(train)
    count, moments = parameters(train), MOMENTS.get(str(keys["opt_type"]))
    weight = BYTES.get(str(keys["weight_dtype"]))
    first = BYTES.get(str(keys["mu_dtype"] or keys["weight_dtype"])) if keys["opt_type"] == "adamw" else weight
    if count is None or moments is None or weight is None or first is None:
        return None
    return count * (weight + (first + weight if moments else 0))


def context(train: Mapping[str, Any]) -> int | None:
    """The longest sequence, in tokens, that the model was made for; None where nobody says."""
    keys, own = settings(train), row_of(train).get("keys", {})
    if name_of(train) in _PUBLISHED_CONTEXT:
        return _PUBLISHED_CONTEXT[name_of(train)]
    if "max_position_embeddings" in own or "max_position_embeddings" in train:
        return int(keys["max_position_embeddings"])
    return None
