"""config.json of a model: written from MaxText's keys, and compared with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer.errors import ConfigError
from trainer.weights.model import FAMILIES, LLAMA31_SCALING, Model, local_layers
from trainer.weights.tokenizer import Tokens


def build(model: Model, dtype: str, tokens: Tokens) -> dict[str, Any]:
    """Return config.json: all settings of the run's model, by the family's names."""
    sizes, keys = model.sizes, model.keys
    config: dict[str, Any] = {
        "architectures": [model.family.architecture],
        "model_type": model.family.name,
        "dtype": dtype,
        "torch_dtype": dtype,  # the name in transformers 4, and in the programs that follow it
        "vocab_size": sizes["vocab"],
        "hidden_size": sizes["emb"],
        "intermediate_size": sizes["mlp"],
        "num_hidden_layers": model.layers,
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "head_dim": sizes["head_dim"],
        "rms_norm_eps": model.epsilon,
        "rope_theta": float(keys["rope_max_timescale"]),
        "rope_scaling": _rope_scaling(model),
        "max_position_embeddings": int(keys["max_target_length"]),
        "tie_word_embeddings": model.tied,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": tokens.bos,
        "eos_token_id": tokens.eos,
        "pad_token_id": tokens.pad,
    }
    # Gemma's implementations read another name.
    config["hidden_activation" if model.is_gemma else "hidden_act"] = model.family.hidden_act
    return config | _of_family(model)


def _of_family(model: Model) -> dict[str, Any]:
    sizes, keys = model.sizes, model.keys
    match model.family.name:
        case "llama":
            return {"mlp_bias": False, "pretraining_tp": 1}
        case "mistral":
            return {"sliding_window": None}
        case "mixtral":
            return {
                "sliding_window": None,
                "num_local_experts": sizes["experts"],
                "num_experts_per_tok": int(keys["num_experts_per_tok"]),
                "output_router_logits": False,
                "router_aux_loss_coef": float(keys["load_balance_loss_weight"]),
            }
        case "gemma2":
            return {
                "query_pre_attn_scalar": model.query_pre_attn_scalar,
                "sliding_window": int(keys["sliding_window_size"]),
                "layer_types": local_layers(model),
                "attn_logit_softcapping": float(keys["attn_logits_soft_cap"] or 0) or None,
                "final_logit_softcapping": float(keys["final_logits_soft_cap"] or 0) or None,
            }
        case "gemma3_text":
            local = float(keys["local_rope_max_timescale"])
            return {
                "query_pre_attn_scalar": model.query_pre_attn_scalar,
                "sliding_window": int(keys["sliding_window_size"]),
                "sliding_window_pattern": 6,
                "layer_types": local_layers(model),
                "rope_local_base_freq": local if local > 0 else float(keys["rope_max_timescale"]),
                "attn_logit_softcapping": None,
                "final_logit_softcapping": None,
                "use_bidirectional_attention": False,
            }
        case "qwen3":
            return {"use_sliding_window": False, "sliding_window": None, "max_window_layers": model.layers}
        case _:
            return {
                "use_sliding_window": False,
                "sliding_window": None,
                "max_window_layers": model.layers,
                "num_experts": sizes["experts"],
                "num_experts_per_tok": int(keys["num_experts_per_tok"]),
                "moe_intermediate_size": sizes["mlp"],
                "decoder_sparse_step": 1,
                "mlp_only_layers": [],
                # MaxText always normalizes: it applies the softmax to the chosen experts only.
                "norm_topk_prob": True,
                "output_router_logits": False,
                "router_aux_loss_coef": float(keys["load_balance_loss_weight"]),
            }


def _rope_scaling(model: Model) -> dict[str, Any] | None:
    if model.llama31_rotary:
        return dict(LLAMA31_SCALING) if model.keys["rope_use_scale"] else None
    factor = float(model.keys["rope_linear_scaling_factor"])
    return {"rope_type": "linear", "factor": factor} if factor != 1.0 else None


_SIZE_KEYS = {
    "num_hidden_layers": "base_num_decoder_layers",
    "hidden_size": "base_emb_dim",
    "intermediate_size": "base_mlp_dim",
    "moe_intermediate_size": "base_moe_mlp_dim",
    "num_attention_heads": "base_num_query_heads",
    "num_key_value_heads": "base_num_kv_heads",
    "head_dim": "head_dim",
    "num_local_experts": "num_experts",
    "num_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "tie_word_embeddings": "logits_via_embedding",
    "rms_norm_eps": "normalization_layer_epsilon",
    "rope_theta": "rope_max_timescale",
    "rope_scaling": "rope_type",
    "rope_local_base_freq": "local_rope_max_timescale",
    "sliding_window": "sliding_window_size",
    "query_pre_attn_scalar": "model_name",
    "attn_logit_softcapping": "attn_logits_soft_cap",
    "final_logit_softcapping": "final_logits_soft_cap",
    "hidden_act": "mlp_activations",
    "hidden_activation": "mlp_activations",
    "attention_bias": "attention_bias",
    "mlp_bias": "mlp_bias",
}
"""The keys of config.json that must agree with the run's config, and MaxText's key of each."""

_FIXED: Mapping[str, Any] = {
    "layer_types": None,
    "sliding_window_pattern": None,
    "use_bidirectional_attention": False,
    "norm_topk_prob": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": None,
    "partial_rotary_factor": 1.0,
}
"""Other keys of config.json that change what the model computes, with transformers' defaults. No key of MaxText sets
them: its model of the family has the value of `build`. A null is the default of the family."""

_WHOLE = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "sliding_window", "num_local_experts", "num_experts"),
    "num_experts_per_tok",
)
_NUMBERS = (
    *("rms_norm_eps", "rope_theta", "rope_local_base_freq", "query_pre_attn_scalar"),
    *("attn_logit_softcapping", "final_logit_softcapping", "rope_scaling.factor"),
)
_NEEDED = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
_NOT_NULL = ("rms_norm_eps", "rope_theta", "rope_local_base_freq", "vocab_size")  # for the others, null is the default


def read(folder: Path) -> dict[str, Any]:
    """Return config.json of a folder, with the names of `normalized`. Raises ConfigError if it is not valid."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        if (folder / "adapter_config.json").is_file():
            instead = "is an adapter; write a whole model with launcher export RUN --merge, and import that"
        else:
            instead = "is not a folder in Hugging Face format; for a model of the Hub, use hf:ORG/NAME"
        raise ConfigError(f"{folder} has no config.json, so it {instead}.") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(config, dict) or not config.get("model_type"):
        raise ConfigError(f"{path} has no model_type, so it does not describe a model in Hugging Face format.")
    config = normalized(config)
    if config["model_type"] in (family.name for family in FAMILIES) and (clauses := [*_of_other_types(config)]):
        raise ConfigError(f"{path}: {'; '.join(clauses)}.")
    return config


def _of_other_types(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a clause for each key that is not of the type that transformers needs."""
    scaling = config.get("rope_scaling")
    config = {**config, "rope_scaling.factor": scaling.get("factor") if isinstance(scaling, dict) else None}
    for name in [*_WHOLE, *_NUMBERS, "rope_scaling"]:
        value = config.get(name)
        kind = "an object" if name == "rope_scaling" else f"a {'whole ' * (name in _WHOLE)}number above 0"
        if value is None:
            valid = name not in _NEEDED and (name not in config or name not in _NOT_NULL)
        elif name == "rope_scaling":
            valid = isinstance(value, dict)
        else:
            valid = type(value) in ((int,) if name in _WHOLE else (int, float)) and 0 < value < 2**63
        if not valid:
            yield f"{name} is {json.dumps(value)}, not {kind}"


def normalized(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text model's part of a config, with the names of transformers 4."""
    if config["model_type"] == "gemma3" and isinstance(config.get("text_config"), dict):
        # A Gemma 3 with vision contains the text model. Its file leaves out what is a default of transformers.
        defaults = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": True}
        config = {**defaults, **config["text_config"], "model_type": "gemma3_text"}
    rope = config.get("rope_parameters")
    if isinstance(rope, dict):
        config = {**config, **_old_rope(rope)}
    return dict(config)


def _old_rope(rope: Mapping[str, Any]) -> dict[str, Any]:
    """Return transformers 5's rope_parameters by the names of transformers 4."""
    by_old_name: dict[str, Any] = {}
    local, full = rope.get("sliding_attention"), rope.get("full_attention")
    if isinstance(local, Mapping) and "rope_theta" in local:
        by_old_name["rope_local_base_freq"] = local["rope_theta"]
    whole = full if isinstance(full, Mapping) else rope
    for name in ("rope_theta", "partial_rotary_factor"):  # else at the top level, as in transformers 4
        if name in whole:
            by_old_name[name] = whole[name]
    scaling = {key: value for key, value in whole.items() if key not in by_old_name}
    by_old_name["rope_scaling"] = None if scaling.get("rope_type", "default") == "default" else scaling
    return by_old_name


# The defaults of transformers for keys that config.json leaves out.
_DEFAULTS: Mapping[str, Any] = {
    "tie_word_embeddings": False,
    "rope_scaling": None,
    "attention_bias": False,
    "mlp_bias": False,
    "sliding_window": None,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
}
_GEMMA_DEFAULTS: Mapping[str, Any] = {
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "rope_local_base_freq": 10000.0,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_FAMILY_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"sliding_window": 4096},
    "mixtral": {"rope_theta": 1_000_000.0, "rms_norm_eps": 1e-5},
    "gemma2": {**_GEMMA_DEFAULTS, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3_text": {**_GEMMA_DEFAULTS, "rope_theta": 1_000_000.0},
}


_OTHER_NAMES = {"num_experts": "num_local_experts", "num_local_experts": "num_experts"}


def values(hub: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of _SIZE_KEYS in config.json, with transformers' defaults for those that it leaves out."""
    family = hub["model_type"]
    heads = hub.get("num_attention_heads")
    defaults = {
        **_DEFAULTS,
        **_FAMILY_DEFAULTS.get(family, {}),
        "head_dim": int(hub.get("hidden_size") or 0) // max(1, int(heads or 1)),
        "num_key_value_heads": heads,
    }
    every = {name: hub.get(name, hub.get(_OTHER_NAMES.get(name, name), defaults.get(name))) for name in _SIZE_KEYS}
    for name in ("head_dim", "num_key_value_heads"):
        if every[name] is None:
            every[name] = defaults[name]
    return every


def differences(theirs: Mapping[str, Any], model: Model) -> list[str]:
    """Return a clause for each setting of config.json that is not that of the run's model, of the same family."""
    expected = build(model, "float32", Tokens())
    clauses = []
    for name, value in values(theirs).items():
        if name not in expected:
            continue
        if name == "intermediate_size" and model.family.name == "qwen3_moe":
            continue  # the size of dense layers, of which there are none
        if name == "query_pre_attn_scalar" and model.family.name == "gemma2":
            continue  # MaxText folds it into the kernel, so any number is possible
        if name == "sliding_window" and not model.is_gemma:
            # MaxText has no window in these families, which matters only for longer sequences.
            if theirs.get("use_sliding_window", True) and value and value < int(model.keys["max_target_length"]):
                clauses.append(
                    f"sliding_window is {value}, but MaxText's {model.family.name} has none (set "
                    f"train.max_target_length to at most {value})"
                )
        elif not _equal(value, expected[name]):
            clauses.append(f"{name} is {value}, but the run's model has {expected[name]} (train.{_SIZE_KEYS[name]})")
    for name, (value, ours) in _fixed(theirs, expected).items():
        if value is not None and not _equal(value, ours):
            clauses.append(f"{name} is {value}, but the run's model has {ours}")
    vocabulary = int(theirs.get("vocab_size") or 0)
    if vocabulary > model.sizes["vocab"]:
        clauses.append(
            f"vocab_size is {vocabulary:,}, but the run's model has room for {model.sizes['vocab']:,} "
            "(train.vocab_size)"
        )
    return clauses


def _fixed(theirs: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the values of _FIXED in config.json and in the run's model, with the first layer of another type."""
    ours = {**expected, "partial_rotary_factor": 1.0}
    pairs = {name: (theirs.get(name, default), ours[name]) for name, default in _FIXED.items() if name in ours}
    types, own_types = pairs.pop("layer_types", (None, None))
    if isinstance(types, list) and own_types:  # the pattern is read only without this list
        pairs.pop("sliding_window_pattern", None)
        both = enumerate(zip(types, own_types, strict=False))
        pairs |= dict([(f"layer_types[{layer}]", pair) for layer, pair in both if pair[0] != pair[1]][:1])
    return pairs


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        # "type" is the name of rope_type in older files.
        first, second = (
            {"rope_type" if key == "type" else key: value for key, value in part.items()} for part in (left, right)
        )
        return first.keys() >= second.keys() and all(_equal(first[key], value) for key, value in second.items())
    if isinstance(left, int | float) and isinstance(right, int | float) and not isinstance(left, bool):
        return abs(left - right) <= 1e-6 * max(abs(left), abs(right))
    return bool(left == right) or (not left and not right)
