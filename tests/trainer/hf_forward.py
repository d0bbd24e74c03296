"""A forward pass of Gemma 2 and 3 in numpy, from a folder in Hugging Face format alone.

mlx-lm computes the other families. Its Gemma 2 has no sliding window, and its Gemma 3 needs at least six layers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

Values = Any  # numpy arrays of float64


def logits(folder: Path, tokens: Values) -> Values:
    """Return the logits of tokens (batch, length) in float64."""
    config = json.loads((folder / "config.json").read_text())
    weights = {name: each.astype(np.float64) for name, each in load_file(folder / "model.safetensors").items()}
    embedding = weights["model.embed_tokens.weight"]
    x = embedding[tokens] * config["hidden_size"] ** 0.5
    for number, kind in enumerate(config["layer_types"]):
        prefix = f"model.layers.{number}."
        layer = {name.removeprefix(prefix): each for name, each in weights.items() if name.startswith(prefix)}
        attended = _attention(_norm(x, layer, "input_layernorm", config), layer, kind, config)
        x = x + _norm(attended, layer, "post_attention_layernorm", config)
        changed = _mlp(_norm(x, layer, "pre_feedforward_layernorm", config), layer)
        x = x + _norm(changed, layer, "post_feedforward_layernorm", config)
    return _capped(_norm(x, weights, "model.norm", config) @ embedding.T, config["final_logit_softcapping"])


def _norm(x: Values, weights: dict[str, Values], name: str, config: dict[str, Any]) -> Values:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * (1 + weights[f"{name}.weight"])


def _mlp(x: Values, layer: dict[str, Values]) -> Values:
    gate = x @ layer["mlp.gate_proj.weight"].T
    gelu = 0.5 * gate * (1 + np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate**3)))
    return (gelu * (x @ layer["mlp.up_proj.weight"].T)) @ layer["mlp.down_proj.weight"].T


def _attention(x: Values, layer: dict[str, Values], kind: str, config: dict[str, Any]) -> Values:
    batch, length, _ = x.shape
    local = kind == "sliding_attention"
    size = config["head_dim"]

    def heads(name: str) -> Values:
        values = (x @ layer[f"self_attn.{name}_proj.weight"].T).reshape(batch, length, -1, size).swapaxes(1, 2)
        if name != "v" and f"self_attn.{name}_norm.weight" in layer:
            values = _norm(values, layer, f"self_attn.{name}_norm", config)
        return values

    query, key = (_rotated(heads(name), local, config) for name in "qk")
    repeats = config["num_attention_heads"] // config["num_key_value_heads"]
    key, value = key.repeat(repeats, 1), heads("v").repeat(repeats, 1)
    scores = _capped(
        query @ key.swapaxes(2, 3) * config["query_pre_attn_scalar"] ** -0.5, config["attn_logit_softcapping"]
    )
    distance = np.arange(length)[:, None] - np.arange(length)
    seen = (distance >= 0) & (distance < (config["sliding_window"] if local else length))
    scores = np.where(seen, scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return (shares @ value).swapaxes(1, 2).reshape(batch, length, -1) @ layer["self_attn.o_proj.weight"].T


def _rotated(x: Values, local: bool, config: dict[str, Any]) -> Values:
    base = config.get("rope_local_base_freq", config["rope_theta"]) if local else config["rope_theta"]
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[2])[:, None] * base ** (-np.arange(half) / half)
    if config["rope_scaling"] and not local:
        angles = angles / config["rope_scaling"]["factor"]
    one, other = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate((one * cos - other * sin, other * cos + one * sin), -1)


def _capped(x: Values, cap: float | None) -> Values:
    return np.tanh(x / cap) * cap if cap else x
