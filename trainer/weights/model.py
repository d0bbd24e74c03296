"""A run's model: its sizes and settings as MaxText reads them, and its family in the format of Hugging Face.

Only models that the other format can express exactly are accepted. Each other setting is an error that names the key.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.maxtext_keys import maxtext_folder


@dataclass(frozen=True)
class Family:
    """A family of models. `blocks` are the values of MaxText's decoder_block; `name` is model_type in config.json."""

    name: str
    architecture: str
    blocks: tuple[str, ...]
    activation: str = "silu"
    hidden_act: str = "silu"


FAMILIES = (
    Family("llama", "LlamaForCausalLM", ("llama2",)),
    Family("mistral", "MistralForCausalLM", ("mistral",)),
    Family("mixtral", "MixtralForCausalLM", ("mixtral",)),
    Family("gemma2", "Gemma2ForCausalLM", ("gemma2",), "gelu", "gelu_pytorch_tanh"),
    Family("gemma3_text", "Gemma3ForCausalLM", ("gemma3",), "gelu", "gelu_pytorch_tanh"),
    Family("qwen3", "Qwen3ForCausalLM", ("qwen3",)),
    Family("qwen3_moe", "Qwen3MoeForCausalLM", ("qwen3_moe",)),
)
"""Llama 2, 3 and 3.1 are one family: they differ in sizes, rotary embedding and tokenizer only."""

GEMMA_EPSILON = 1e-6
"""The epsilon of the norms in MaxText's Gemma layers. normalization_layer_epsilon applies to the other norms only."""

LLAMA31_SCALING: Mapping[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""The constants in MaxText's LLaMARotaryEmbedding (maxtext/layers/embeddings.py)."""

_GEMMA3_PATTERN = 6  # five local layers, then a global one

# Settings of MaxText that change what the model computes or how its parameters are stored, and that no family here can
# express: the key, and the values that leave them off.
_OFF: Mapping[str, tuple[Any, ...]] = {
    "quantization": ("",),
    "checkpoint_is_quantized": (False,),
    "weight_sparsity_n": (None,),
    "attention_type": ("global",),
    "attention_bias": (False,),
    "attention_sink": (False,),
    "attention_output_dim": (-1,),
    "share_kv_projections": (False,),
    "fused_qkv": (False,),
    "fused_mlp": (False,),
    "mlp_bias": (False,),
    "mlp_activations_limit": (-1.0,),
    "param_scan_axis": (1,),
    "rope_min_timescale": (1,),
    "partial_rotary_factor": (1.0,),
    "nope_layer_interval": (-1,),
    "temperature_tuning": (False,),
    "qk_norm_with_scale": (True,),
    "trainable_position_size": (-1, 0),
    "use_untrainable_positional_embedding": (False,),
    "use_multimodal": (False,),
    "mtp_num_layers": (0,),
    "mhc_expansion_rate": (1,),
    "engram_layers": ([],),
    "inhomogeneous_layer_cycle_interval": (1,),
    "first_num_dense_layers": (0,),
    "shared_experts": (0,),
    "routed_bias": (False,),
    "routed_score_func": ("",),
    "n_routing_groups": (-1,),
    "use_random_routing": (False,),
    "enable_diloco": (False,),
    "ici_pipeline_parallelism": (1,),
    "dcn_pipeline_parallelism": (1,),
}


@dataclass(frozen=True)
class Model:
    """The model of a run: its family, and the MaxText keys that apply to it."""

    family: Family
    keys: Mapping[str, Any]

    @property
    def name(self) -> str:
        """MaxText's model_name; "default" if the sizes are given one by one."""
        return str(self.keys["model_name"])

    @cached_property
    def _scales(self) -> tuple[int, int, int]:
        """Return the factors of width, heads (and MLP), and layers. MaxText doubles them in turn (its configs/types.py,
        get_individual_scales)."""
        base, rest = divmod(int(math.log2(int(self.keys["global_parameter_scale"]))), 3)
        return 2 ** (base + (rest > 1)), 2 ** (base + (rest > 0)), 2**base

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The sizes of the dimensions, by the names that the tables in tensors.py use."""
        width, heads, _ = self._scales
        return {
            "emb": width * int(self.keys["base_emb_dim"]),
            "heads": heads * int(self.keys["base_num_query_heads"]),
            "kv_heads": heads * int(self.keys["base_num_kv_heads"]),
            "head_dim": int(self.keys["head_dim"]),
            "mlp": heads * int(self.keys["base_moe_mlp_dim" if self.experts else "base_mlp_dim"]),
            "vocab": int(self.keys["vocab_size"]),
            "experts": self.experts,
        }

    @property
    def experts(self) -> int:
        """The number of experts of each layer; 0 if the family is dense."""
        return int(self.keys["num_experts"]) if self.family.name in ("mixtral", "qwen3_moe") else 0

    @property
    def blocks(self) -> int:
        """The number of MaxText's layers. One of Gemma 2 is two layers: a local one and a global one."""
        return self._scales[2] * int(self.keys["base_num_decoder_layers"])

    @property
    def layers(self) -> int:
        return self.blocks * (2 if self.family.name == "gemma2" else 1)

    @property
    def scanned(self) -> bool:
        """Whether the parameters of all layers are stacked in one array."""
        return bool(self.keys["scan_layers"])

    @property
    def tied(self) -> bool:
        """Whether the logits are computed with the embedding."""
        return bool(self.keys["logits_via_embedding"])

    @property
    def is_gemma(self) -> bool:
        return self.family.name.startswith("gemma")

    @property
    def epsilon(self) -> float:
        return float(self.keys["normalization_layer_epsilon"])

    @property
    def llama31_rotary(self) -> bool:
        """Whether MaxText rotates neighboring pairs of a head, not its two halves."""
        return self.name.startswith("llama3.1") or str(self.keys["rope_type"]).lower().startswith("llama3.1")

    @property
    def query_pre_attn_scalar(self) -> float:
        """The number whose inverse square root scales the queries: imported weights', or the family's in MaxText."""
        if (given := self.keys.get("query_pre_attn_scalar")) is not None:
            return float(given)
        if self.name == "gemma3-27b":
            return int(self.keys["base_emb_dim"]) // int(self.keys["base_num_query_heads"])
        return self.sizes["head_dim"]

    @property
    def query_scale(self) -> float:
        """The factor of the query kernel from MaxText to Hugging Face. MaxText folds the scaling of the queries into
        the kernel, except for Gemma 3 and Qwen 3."""
        return 1.0 if self.family.name in ("gemma3_text", "qwen3", "qwen3_moe") else self.query_pre_attn_scalar**0.5

    @property
    def embedding_scale(self) -> float:
        """The factor of the embedding from MaxText to Hugging Face. MaxText folds Gemma's scaling into it."""
        return self.sizes["emb"] ** -0.5 if self.is_gemma else 1.0

    def describe(self) -> dict[str, Any]:
        """Return what two records must have in common to be the same model."""
        return {
            "family": self.family.name,
            "vocabulary": self.sizes["vocab"],
            "layers": self.layers,
            "hiddenSize": self.sizes["emb"],
            "intermediateSize": self.sizes["mlp"],
            "heads": self.sizes["heads"],
            "keyValueHeads": self.sizes["kv_heads"],
            "headDim": self.sizes["head_dim"],
            "experts": self.experts,
            "tiedEmbeddings": self.tied,
        }


def read(config: RunConfig) -> Model:
    """Return the model of a run. Raises ConfigError with the key that Hugging Face's format cannot express."""
    return of(config.train)


def of(train: Mapping[str, Any]) -> Model:
    """Return the model that these keys of MaxText select. Raises ConfigError as `read`."""
    keys = _keys(train)
    block = str(keys["decoder_block"])
    family = next((each for each in FAMILIES if block in each.blocks), None)
    if family is None:
        name = "model_name" if keys["model_name"] != "default" else "decoder_block"
        known = ", ".join(block for each in FAMILIES for block in each.blocks)
        raise ConfigError(
            f"train.{name}: models with the decoder {block} have no export; use a model with one of: {known}."
        )
    model = Model(family, keys)
    _check(model)
    return model


def _keys(train: Mapping[str, Any]) -> dict[str, Any]:
    """Return MaxText's keys of the run: base.yml, then the model's file, then the user's. MaxText itself refuses a key
    that is in both of the latter, unless train.override_model_config is set."""
    user = {key: value for key, value in train.items() if value is not None}
    configs = maxtext_folder() / "configs"
    keys = _read(configs / "base.yml")
    name = str(user.get("model_name", keys["model_name"]))
    path = configs / "models" / f"{name}.yml"
    if name != "default":
        if not path.is_file():
            raise ConfigError(f'train.model_name: MaxText has no model "{name}".')
        keys = {**keys, **_read(path)}
    return {**keys, **user}


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    keys: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return keys


def _check(model: Model) -> None:
    keys, family = model.keys, model.family
    for key, allowed in _OFF.items():
        value = keys.get(key, allowed[0])
        if value in ("None", "null"):
            value = None
        if value not in allowed and not (value is None and not allowed[0]):
            _refuse(key, value, family)
    activations = keys["mlp_activations"]
    if list(activations) != [family.activation, "linear"]:
        _refuse("mlp_activations", activations, family)
    rope = str(keys["rope_type"]).lower()
    if rope != "default" and not (rope.startswith("llama3.1") and family.name == "llama"):
        _refuse("rope_type", rope, family)
    if bool(keys["use_qk_norm"]) != family.name.startswith("qwen3") and family.name != "gemma3_text":
        _refuse("use_qk_norm", keys["use_qk_norm"], family)
    if model.tied and bool(keys["normalize_embedding_logits"]) != model.is_gemma:
        _refuse("normalize_embedding_logits", keys["normalize_embedding_logits"], family)
    if model.tied and float(keys["final_logits_soft_cap"] or 0) and family.name != "gemma2":
        _refuse("final_logits_soft_cap", keys["final_logits_soft_cap"], family)
    if model.is_gemma:
        _check_gemma(model)
    elif family.name in ("mixtral", "qwen3_moe"):
        if int(keys["num_experts"]) < 2:
            _refuse("num_experts", keys["num_experts"], family)
        if int(keys["base_moe_mlp_dim"]) <= 0:
            _refuse("base_moe_mlp_dim", keys["base_moe_mlp_dim"], family)
    elif int(keys["num_experts"]) > 1:
        _refuse("num_experts", keys["num_experts"], family)


def _check_gemma(model: Model) -> None:
    keys, family = model.keys, model.family
    if not model.tied:
        _refuse("logits_via_embedding", False, family)
    if abs(model.epsilon - GEMMA_EPSILON) > 1e-12:
        _refuse("normalization_layer_epsilon", keys["normalization_layer_epsilon"], family)
    for key in ("use_post_attn_norm", "use_post_ffw_norm"):
        if not keys[key]:
            _refuse(key, False, family)
    if int(keys["sliding_window_size"]) <= 0:
        _refuse("sliding_window_size", keys["sliding_window_size"], family)
    local = int(keys["local_rope_max_timescale"])
    if family.name == "gemma2":
        if local > 0:
            _refuse("local_rope_max_timescale", local, family)
        if float(keys["rope_linear_scaling_factor"]) != 1.0:
            _refuse("rope_linear_scaling_factor", keys["rope_linear_scaling_factor"], family)
    elif float(keys["attn_logits_soft_cap"] or 0):
        _refuse("attn_logits_soft_cap", keys["attn_logits_soft_cap"], family)


def _refuse(key: str, value: object, family: Family) -> None:
    raise ConfigError(f"train.{key} is {value}; the Hugging Face format of the family {family.name} cannot express it.")


def local_layers(model: Model) -> list[str]:
    """Return the kind of each layer's attention, as `layer_types` in config.json lists it."""
    period = 2 if model.family.name == "gemma2" else _GEMMA3_PATTERN
    return ["full_attention" if index % period == period - 1 else "sliding_attention" for index in range(model.layers)]
