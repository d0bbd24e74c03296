"""Compares the config of a run that continues (`submit --continue`) with that of its last checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from launcher.config.checks.weights_rules import differences, tokenizers
from launcher.config.maxtext import models

# Switches of base.yml, all false there, that add arrays to the model or merge them. A model's own may be true.
_SWITCHES = "attention_bias logits_via_embedding mlp_bias use_qk_norm fused_qkv fused_mlp routed_bias"

# Keys that change the form of a host's position in the text, with the values of a run that does not set them.
_PIPELINE = {"packing": True, "grain_packing_type": "first_fit", "grain_worker_count": 0}


def obstacles(old: Mapping[str, Any], new: Mapping[str, Any], done: int | None, least: int = 0) -> list[str]:
    """Return what keeps a run with the config `old` from continuing with `new`: "train.vocab_size: 2000 -> 32000".

    `done` is the number of steps in its checkpoint, if that is known, and `least` how many more `new` must have. Empty
    for a run that does not train.
    """
    if (new.get("run") or {}).get("command"):
        return []
    theirs, ours = ({k: v for k, v in (each.get("train") or {}).items() if v is not None} for each in (old, new))
    changes = {f"train.{key}": pair for key, pair in differences(theirs, ours).items()}
    pairs = {"train.opt_type": tuple(models.settings(each).get("opt_type") for each in (theirs, ours))}
    pairs["train.param_scan_axis"] = (theirs.get("param_scan_axis", 1), ours.get("param_scan_axis", 1))
    if models.name_of(ours) == models.name_of(theirs) == "default":
        pairs |= {f"train.{key}": (bool(theirs.get(key)), bool(ours.get(key))) for key in _SWITCHES.split()}
    tunings = [each.get("tuning") or {} for each in (old, new)]
    if any(map(models.adapter, tunings)):
        pairs |= {f"tuning.{key}": tuple(each.get(key) for each in tunings) for key in ("method", "adapter", "lora")}
        pairs["from"] = (old.get("from"), new.get("from"))
    if ours.get("enable_checkpointing") is False:  # it would start again
        pairs["train.enable_checkpointing"] = (theirs.get("enable_checkpointing", True), False)
    if any((new.get("data") or {}).get(key) for key in ("files", "corpus", "mixture")):  # a host has a position in it
        data = [each.get("data") or {} for each in (old, new)]
        pairs |= {"hosts": (_hosts(old), _hosts(new)), "data.mixture": tuple(bool(d.get("mixture")) for d in data)}
        pairs["data.tokenizer.path"] = tokenizers(old, new)  # the weights know ids, not words
        methods = tuple(each.get("method") or "pretrain" for each in tunings)
        if "pretrain" in methods:
            pairs |= {"tuning.method": methods}
            pairs |= {f"train.{key}": (theirs.get(key, v), ours.get(key, v)) for key, v in _PIPELINE.items()}
    changes |= {key: (was, now) for key, (was, now) in pairs.items() if was != now}
    if done and isinstance(steps := ours.get("steps"), int) and steps < done + least:
        changes["train.steps"] = (f"{done} done", steps)
    return [f"{key}: {_text(was)} -> {_text(now)}" for key, (was, now) in changes.items()]


def _hosts(config: Mapping[str, Any]) -> int:
    part = config.get("slice") or {}
    return int((config.get("accelerator") or {}).get("hosts") or part.get("hosts") or 1) * int(part.get("count") or 1)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
