"""Compares the config of a run that continues with that of its last checkpoint, which must fit it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.starting_weights import saved_steps
from trainer.tuning.settings import Tuning

# Keys of MaxText that change which arrays a checkpoint has, or their shapes. launcher/config/resume.py compares the
# effective values, and so refuses before the submit.
OF_THE_MODEL = (
    *("model_name", "decoder_block", "base_emb_dim", "base_num_query_heads", "base_num_kv_heads", "base_mlp_dim"),
    *("base_moe_mlp_dim", "base_num_decoder_layers", "head_dim", "vocab_size", "num_experts", "scan_layers"),
    *("global_parameter_scale", "opt_type", "param_scan_axis"),
)
# Keys that change the form of a host's position in the text, with the values of a run that does not set them.
OF_THE_TEXT = {"packing": True, "grain_packing_type": "first_fit", "grain_worker_count": 0}


def check(config: RunConfig) -> None:
    """Raise ConfigError if the run has a checkpoint that this config cannot continue.

    Call it before the config is kept, because the folder has the config of the checkpoint.
    """
    if not (done := saved_steps(config)):
        return
    kept: Any = None
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads((config.folder / "run.json").read_text(encoding="utf-8"))
    if not isinstance(kept, dict):
        return
    theirs = kept.get("train") or {}
    for key in OF_THE_MODEL:
        if theirs.get(key) != config.train.get(key):
            raise _refused(config, f"train.{key}", theirs.get(key), config.train.get(key), done)
    tuning = Tuning.of(kept)
    if config.corpus is not None and tuning.applies != config.tuning.applies:
        raise _refused(config, "tuning.method", tuning.method, config.tuning.method, done)
    if config.corpus is not None and not tuning.applies:
        for key, default in OF_THE_TEXT.items():
            if (was := theirs.get(key, default)) != (now := config.train.get(key, default)):
                raise _refused(config, f"train.{key}", was, now, done)
    adapters = tuning.lora
    if config.tuning.lora != adapters or (adapters and kept.get("from") != config.tree.get("from")):
        raise ConfigError(
            f"{config.name} cannot continue from its last checkpoint: from, tuning.method, tuning.adapter or "
            "tuning.lora has changed, and its adapters belong to the earlier values; change them back, or submit under "
            "a new name."
        )
    if config.corpus is not None and (hosts := _hosts(kept)) not in (None, config.hosts):
        raise _refused(config, "the number of hosts", hosts, config.hosts, done)
    first, second = (_tokenizer(tree) for tree in (kept, config.tree))
    if config.corpus is not None and first != second:
        raise ConfigError(
            f"{config.name} cannot continue from its last checkpoint: its weights know only the ids of the tokenizer "
            f"{first}, and data.tokenizer is {second} now; change it back, or submit under a new name."
        )


def _hosts(tree: Mapping[str, Any]) -> int | None:
    try:
        return int(tree["accelerator"]["hosts"]) * int(tree["slice"].get("count") or 1)
    except (KeyError, TypeError, ValueError):
        return None


def _tokenizer(tree: Mapping[str, Any]) -> str:
    """Return the name of the tokenizer, whose folder can move. The weights know its ids, not its words."""
    path = ((tree.get("data") or {}).get("tokenizer") or {}).get("path") or "tokenizer.llama2"
    return str(path).rstrip("/").rpartition("/")[2]


def _refused(config: RunConfig, what: str, was: object, now: object, done: int) -> ConfigError:
    def text(value: object) -> str:
        return "not set" if value is None else str(value)

    new = f"start a new run from its weights (from: {config.name}@{done - 1})"
    own_model = what.removeprefix("train.") in OF_THE_MODEL and what != "train.opt_type"
    if config.tuning.lora is not None or own_model:
        new = "submit under a new name"
    return ConfigError(
        f"{config.name} cannot continue from its last checkpoint: {what} was {text(was)}, and is {text(now)} now; "
        f"change it back, or {new}."
    )
