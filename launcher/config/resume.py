"""Compares the config of a run that continues (`submit --continue`) with that of its last checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from launcher.config.checks.weights_rules import differences
from launcher.config.maxtext import models

# Switches of base.yml, all false there, that add arrays to the model or merge them. A model's own may be true.
_SWITCHES = (
    "attention_bias",
    "logits_via_embedding",
    "mlp_bias",
    "use_qk_norm",
    "use_post_attn_norm",
    "use_post_ffw_norm",
    "fused_qkv",
    "fused_mlp",
    "routed_bias",
)


def obstacles(old: Mapping[str, Any], new: Mapping[str, Any], *, done: int | None = None) -> list[str]:
    """Return what keeps a run with the config `old` from continuing with `new`: "train.vocab_size: 2000 -> 32000".

    `done` is the number of steps in its checkpoint, if that is known. Empty for a run that does not train.
    """
    if (new.get("run") or {}).get("command"):
        return []
    ours, theirs = _train(new), _train(old)
    found = {f"train.{key}": pair for key, pair in differences(theirs, ours).items()}
    was, now = (models.settings(each).get("opt_type") for each in (theirs, ours))
    if was != now:
        found["train.opt_type"] = (was, now)
    if models.name_of(ours) == models.name_of(theirs) == "default":
        for key in _SWITCHES:
            if bool(theirs.get(key)) != bool(ours.get(key)):
                found[f"train.{key}"] = (bool(theirs.get(key)), bool(ours.get(key)))
    if ours.get("enable_checkpointing") is False and theirs.get("enable_checkpointing") is not False:
        found["train.enable_checkpointing"] = (True, False)  # it would not read its checkpoints, and start again
    # Each host has its own position in the text.
    if _has_text(new) and (hosts := (_hosts(old), _hosts(new)))[0] != hosts[1]:
        found["hosts"] = hosts
    steps = ours.get("steps")
    if done and isinstance(steps, int) and steps < done:
        found["train.steps"] = (f"{done} done", steps)
    return [f"{key}: {_text(was)} -> {_text(now)}" for key, (was, now) in found.items()]


def all_done(old: Mapping[str, Any], new: Mapping[str, Any]) -> int | None:
    """Return the number of steps of a run that succeeded with `old`, if `new` adds none; else None."""
    before, after = _train(old).get("steps"), _train(new).get("steps")
    trains = not (new.get("run") or {}).get("command")
    return after if trains and isinstance(after, int) and after == before else None


def _train(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (config.get("train") or {}).items() if value is not None}


def _has_text(config: Mapping[str, Any]) -> bool:
    data = config.get("data") or {}
    return bool(data.get("files") or data.get("corpus"))


def _hosts(config: Mapping[str, Any]) -> int:
    part = config.get("slice") or {}
    return int((config.get("accelerator") or {}).get("hosts") or part.get("hosts") or 1) * int(part.get("count") or 1)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
