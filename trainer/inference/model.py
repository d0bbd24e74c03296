"""Load a model from a Hugging Face folder. MLX reads all families that Slipway exports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.errors import ConfigError

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")


@dataclass(frozen=True, eq=False)
class Model:
    """A model in memory. `network` maps tokens to logits, and `tokenizer` is mlx-lm's wrapper of the tokenizer.

    `context` is the longest sequence, in tokens, that the model supports; None if its config does not have it.
    """

    folder: Path
    network: Any
    tokenizer: Any
    context: int | None

    @property
    def end_tokens(self) -> frozenset[int]:
        return frozenset(self.tokenizer.eos_token_ids)

    @property
    def vocabulary(self) -> int:
        """The number of logits per token, which may be larger than the tokenizer's vocabulary."""
        return int(self.network(_one_token()).shape[-1])

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, with the tokens that the tokenizer adds at its start."""
        start = self.tokenizer.bos_token
        return list(self.tokenizer.encode(text, add_special_tokens=not (start and text.startswith(start))))


def load(folder: Path) -> Model:
    """Load the model. Raises ConfigError if the folder does not contain a whole model of a family that MLX supports."""
    config = _checked(folder)
    import mlx_lm

    try:
        network, tokenizer = mlx_lm.load(str(folder))
    except Exception as error:  # of MLX, of safetensors, of transformers and of tokenizers: they have no common base
        raise ConfigError(f"{folder} cannot be loaded as a model: {_first_line(error)}") from error
    return Model(folder, network, tokenizer, context_of(config))


def context_of(config: Mapping[str, Any]) -> int | None:
    """Return the longest sequence of a config.json; None if it does not have it."""
    for part in (config, config.get("text_config") or {}):
        if isinstance(part.get("max_position_embeddings"), int):
            return int(part["max_position_embeddings"])
    return None


def _checked(folder: Path) -> dict[str, Any]:
    """Return config.json, after a check of which files the folder has."""
    if not folder.is_dir():
        raise ConfigError(f"There is no folder {folder}.")
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{folder} is not a Hugging Face model: it has no {CONFIG}.")
    config = _json(folder / CONFIG)
    shards = {"model.safetensors"}
    if (folder / INDEX).is_file():
        named = _json(folder / INDEX).get("weight_map")
        if not isinstance(named, dict):
            raise ConfigError(f"{folder / INDEX} is damaged: it has no weight_map.")
        shards = set(map(str, named.values()))
    for shard in sorted(shards):
        if not (folder / shard).is_file():
            raise ConfigError(f"{folder} is incomplete: it has no {shard}.")
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ConfigError(f"{folder} has no tokenizer: none of {', '.join(_TOKENIZERS)} exists.")
    return config


def _json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: it is not valid JSON.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} is damaged: it is not a JSON object.")
    return tree


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    if lines and "required positional argument" in lines[0]:  # MLX constructs an object of the keys of config.json
        return f"config.json does not have the keys {lines[0].partition(': ')[2]}."
    text = " ".join(" ".join(lines[: 1 + lines[0].rstrip().endswith(":")]).split()) if lines else type(error).__name__
    return f"{text[:300].rstrip('.,')}."


def _one_token() -> Any:
    import mlx.core as mx

    return mx.array([[0]])
