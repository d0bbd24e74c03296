"""The memory that a model needs on this machine, computed before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.config.maxtext import models
from launcher.errors import LauncherError
from launcher.products.common import machine

_GIB = 1 << 30
RUNTIME = 384 << 20
"""Bytes that Python with MLX, transformers and lm-eval needs in addition, and the logits of a batch (measured)."""
_EXPORTED_BYTES = 4  # an export has the checkpoint's type, which is float32 at most
_LONGEST_TEXT = 4096  # trainer/inference/harness.py scores texts of this length at most
_KV_BYTES = 4


@dataclass(frozen=True)
class Need:
    """Bytes that a model needs: its weights, and the KV cache of a text. `explained` is how they add up."""

    weights: float
    cache: float
    explained: str

    @property
    def total(self) -> float:
        return self.weights + self.cache + RUNTIME


def check_model(name: str, folder: Path, config: Mapping[str, Any], tokens: int | None) -> None:
    """Raise LauncherError if the model in a Hugging Face folder needs more memory than this machine has available."""
    _check(name, of_model(folder, config, tokens))


def check_run(name: str, train: Mapping[str, Any], tokens: int | None) -> None:
    """Raise LauncherError if the model of a run does not fit. A model of unknown size is checked after its export."""
    need = of_run(train, tokens)
    if need is not None:
        _check(name, need, of_a_run=True)


def of_model(folder: Path, config: Mapping[str, Any], tokens: int | None) -> Need:
    """Return what the model in a Hugging Face folder needs, by the size of its files and its config.json."""
    weights = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    text = {**config, **(config.get("text_config") or {})}
    layers, heads = _whole(text, "num_hidden_layers"), _whole(text, "num_attention_heads")
    kv_heads = _whole(text, "num_key_value_heads") or heads
    head = _whole(text, "head_dim") or (_whole(text, "hidden_size") // heads if heads else 0)
    length = _length(tokens, _whole(text, "max_position_embeddings") or None)
    cache = 2 * layers * kv_heads * head * length * _KV_BYTES
    return Need(weights, cache, f"{_gib(weights)} for its weights, {_gib(cache)} for {length:,} tokens")


def of_run(train: Mapping[str, Any], tokens: int | None) -> Need | None:
    """Return what the model of a run's config needs; None if the table of MaxText's models does not have its size."""
    count = models.parameters(train)
    if count is None:
        return None
    sizes = models.dimensions(train)
    weights = float(count * _EXPORTED_BYTES)
    length = _length(tokens, models.context(train))
    cache = 2 * sizes["num_decoder_layers"] * sizes["num_kv_heads"] * sizes["head_dim"] * length * _KV_BYTES
    explained = (
        f"{_gib(weights)} for {count / 1e9:,.2f} billion parameters of {_EXPORTED_BYTES} bytes, {_gib(cache)} for "
        f"{length:,} tokens"
    )
    return Need(weights, cache, explained)


def requests_at_once(folder: Path, config: Mapping[str, Any], tokens: int, most: int) -> int:
    """Return how many requests of this length have room for their KV caches at the same time: at least 1."""
    need, available = of_model(folder, config, tokens), machine.memory_to_spare()
    if available is None or not need.cache:
        return most
    return max(1, min(most, int((available - need.weights - RUNTIME) / need.cache)))


def _check(name: str, need: Need, *, of_a_run: bool = False) -> None:
    available = machine.memory_to_spare()
    if available is None or need.total <= available:
        return
    hint = "Use a machine with more memory, or stop other programs on this one."
    if of_a_run and need.total - need.weights / 2 <= available:
        hint = (
            f"As bfloat16 it needs {_gib(need.total - need.weights / 2)}: launcher export {name} --dtype bfloat16 --to "
            "./model, and then use ./model."
        )
    raise LauncherError(
        f"{name} needs {_gib(need.total)} of memory ({need.explained}, and {_gib(RUNTIME)} for the program), but "
        f"this machine has {_gib(available)} available.",
        hint,
    )


def _length(tokens: int | None, context: int | None) -> int:
    longest = _LONGEST_TEXT if tokens is None else tokens
    return min(longest, context) if context else longest


def _whole(tree: Mapping[str, Any], key: str) -> int:
    value = tree.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _gib(size: float) -> str:
    return f"{size / _GIB:,.1f} GiB" if size >= 0.1 * _GIB else f"{size / (1 << 20):,.1f} MiB"
