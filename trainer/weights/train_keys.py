"""The keys of MaxText that select the model of a config.json: what a run sets in `train` to start from its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from trainer.errors import ConfigError
from trainer.maxtext_keys import maxtext_folder
from trainer.weights import hf_config
from trainer.weights.model import FAMILIES, LLAMA31_SCALING, Family, Model, of

# The keys that select a model. A run that sets one of them has a model of its own.
_SELECT = {"model_name", "decoder_block", "base_emb_dim", "base_num_decoder_layers", "base_num_query_heads"}


def selects_a_model(train: Mapping[str, Any]) -> bool:
    return any(train.get(key) is not None for key in _SELECT)


def derive(theirs: Mapping[str, Any], train: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the keys that select the model of config.json: model_name if MaxText knows the model, or else its sizes.

    `train` has the run's other keys. Raises ConfigError for a family that cannot be imported, and with all settings
    that MaxText's model of the family lacks.
    """
    family = next((each for each in FAMILIES if each.name == theirs["model_type"]), None)
    if family is None:
        known = ", ".join(each.name for each in FAMILIES)
        raise ConfigError(
            f"{source} is a model of the family {theirs['model_type']}, which cannot be imported; the families are "
            f"{known}."
        )
    others = {key: value for key, value in train.items() if not selects_a_model({key: value})}
    for name in _models_of(family):
        if (model := _model({**others, "model_name": name})) is not None and _is_exactly(model, theirs):
            return {"model_name": name}
    keys = _sizes(theirs, family)
    if clauses := hf_config.differences(theirs, of({**others, **keys})):
        raise ConfigError(f"{source} has settings that MaxText's {family.name} cannot have: {'; '.join(clauses)}.")
    return keys


def compare(theirs: Mapping[str, Any], model: Model, train: Mapping[str, Any], source: str) -> None:
    """Raise ConfigError if config.json describes another model than the run's, with all differences and the keys."""
    if theirs["model_type"] != model.family.name:
        clauses = [f"the family is {theirs['model_type']}, but the run's model is of the family {model.family.name}"]
    else:
        clauses = hf_config.differences(theirs, model)
    if not clauses:
        return
    raise ConfigError(
        f"{source} is not the run's model: {'; '.join(clauses)}. Its own model is {text(derive(theirs, train, source))}"
    )


def text(keys: Mapping[str, Any]) -> str:
    """Return the keys as one line of a values file."""
    return f"train: {yaml.safe_dump(dict(keys), default_flow_style=True, sort_keys=False, width=10_000).strip()}"


def _models_of(family: Family) -> list[str]:
    """Return the names of MaxText's models of a family, shorter ones first: "qwen3-8b" before "qwen3-8b-base"."""
    names = []
    for path in (maxtext_folder() / "configs" / "models").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        if any(block in text for block in family.blocks):
            names.append(path.stem)
    return sorted(names, key=lambda name: (len(name), name))


def _model(train: Mapping[str, Any]) -> Model | None:
    try:
        return of(train)
    except ConfigError:  # another family, or a model that Hugging Face's format cannot express
        return None


def _is_exactly(model: Model, theirs: Mapping[str, Any]) -> bool:
    if model.family.name != theirs["model_type"] or hf_config.differences(theirs, model):
        return False
    # MaxText's Gemma models have room for more pieces than the published ones.
    return model.is_gemma or model.sizes["vocab"] == theirs.get("vocab_size")


def _sizes(theirs: Mapping[str, Any], family: Family) -> dict[str, Any]:
    of_file = hf_config.values(theirs)
    gemma, experts = family.name.startswith("gemma"), of_file["num_experts"] or of_file["num_local_experts"]
    tied = bool(of_file["tie_word_embeddings"])
    scaling = of_file["rope_scaling"] or {}
    keys: dict[str, Any] = {
        "decoder_block": family.blocks[0],
        "base_num_decoder_layers": int(of_file["num_hidden_layers"]) // (2 if family.name == "gemma2" else 1),
        "base_emb_dim": of_file["hidden_size"],
        "base_mlp_dim": of_file["intermediate_size"],
        "base_num_query_heads": of_file["num_attention_heads"],
        "base_num_kv_heads": of_file["num_key_value_heads"],
        "head_dim": of_file["head_dim"],
        "vocab_size": theirs.get("vocab_size"),
        "mlp_activations": [family.activation, "linear"],
        "normalization_layer_epsilon": of_file["rms_norm_eps"],
        "rope_max_timescale": int(of_file["rope_theta"]),
        "logits_via_embedding": tied,
        "normalize_embedding_logits": gemma if tied else None,
        "use_qk_norm": True if family.name.startswith("qwen3") else None,
    }
    match scaling.get("rope_type", scaling.get("type")):
        case "llama3" if all(scaling.get(key) == value for key, value in LLAMA31_SCALING.items() if key != "rope_type"):
            keys["rope_type"] = "llama3.1"
        case "linear":
            keys["rope_linear_scaling_factor"] = scaling.get("factor")
    if family.name in ("mixtral", "qwen3_moe"):
        keys["num_experts"] = experts
        keys["num_experts_per_tok"] = of_file["num_experts_per_tok"]
        keys["base_moe_mlp_dim"] = of_file["moe_intermediate_size"] or of_file["intermediate_size"]
    if gemma:
        keys |= {
            "use_post_attn_norm": True,
            "use_post_ffw_norm": True,
            "sliding_window_size": of_file["sliding_window"],
        }
        if family.name == "gemma2":
            keys["attn_logits_soft_cap"] = of_file["attn_logit_softcapping"]
            keys["final_logits_soft_cap"] = of_file["final_logit_softcapping"]
        else:
            keys["local_rope_max_timescale"] = int(of_file["rope_local_base_freq"])
    defaults = of({}).keys
    return {key: value for key, value in keys.items() if value is not None and value != defaults.get(key)}
