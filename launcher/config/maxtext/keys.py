"""MaxText's keys: which there are, what each takes, and which of them Slipway sets itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

OWNED: dict[str, str] = {
    "run_name": "use run.name.",
    "base_output_directory": "use storage.mountPath (checkpoints and metrics go below it).",
    "hardware": "use slice.accelerator.",
    "tokenizer_path": "use data.tokenizer.path.",
    "tokenizer_type": "use data.tokenizer.kind.",
    "skip_jax_distributed_system": "slice.hosts and slice.count say how many processes there are.",
    "enable_single_controller": "run.kind says how the run is made.",
    "metrics_file": "metrics.jsonl in the run's folder holds the metrics.",
    "gcs_metrics": "metrics.jsonl in the run's folder, which is in storage, holds the metrics.",
    "prometheus_port": "use tracking.metricsPort.",
    "enable_wandb": "use tracking.wandb.project.",
    "wandb_project_name": "use tracking.wandb.project.",
    "wandb_run_name": "the run's name there is run.name.",
    "num_slices": "use slice.count.",
    "hf_access_token": "set HF_TOKEN in the environment, where it stays out of the run's record.",
}
"""MaxText keys that Slipway sets, and what to do instead."""

TEXT_IS_GIVEN = "data.files or data.corpus is set, and the text comes from there; remove one of the two."
OWNED_WITH_DATA = (
    *("dataset_type", "grain_file_type", "grain_train_files", "grain_eval_files", "grain_train_mixture_config_path"),
    *("hf_path", "hf_train_files", "hf_eval_files", "train_data_columns", "eval_data_columns"),
    *("tokenize_train_data", "tokenize_eval_data", "grain_use_elastic_iterator"),
)
"""MaxText keys that Slipway sets where the text comes from `data`."""


@cache
def maxtext() -> dict[str, Any]:
    """The table of MaxText's keys, made by `python -m tests.maxtext_tables.keys`."""
    table: dict[str, Any] = json.loads((Path(__file__).parent / "keys.json").read_bytes())
    return table


KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list": "a list",
    "map": "a map of keys to values",
    "null": "null",
}


def takes(types: Sequence[str], value: Any) -> bool:
    """Whether MaxText takes `value` for a key of these kinds.

    As MaxText does, an int does for a float, 1e3 for an int, 0 and 1 for a bool, and the text "none" is null.
    Stricter than MaxText: text is no number and true is no number, since both are mistakes more often than not.
    """
    if "any" in types:
        return True
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        return "null" in types
    if isinstance(value, bool):
        return "bool" in types
    if isinstance(value, (int, float)):
        whole = float(value).is_integer()
        return "float" in types or ("int" in types and whole) or ("bool" in types and value in (0, 1))
    if isinstance(value, str):
        return "str" in types
    return ("list" if isinstance(value, list) else "map") in types


POSITIVE: dict[str, dict[str, int]] = {
    "per_device_batch_size": {"gt": 0},
    **{
        key: {"ge": 1}
        for key in (
            *("base_emb_dim", "base_mlp_dim", "base_num_decoder_layers", "base_num_query_heads", "base_num_kv_heads"),
            *("head_dim", "vocab_size", "max_target_length", "checkpoint_period"),
        )
    },
}
"""Numbers for which MaxText sets no bound, or none that holds, and divides by them or makes arrays of their size."""

_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": ("at least", lambda value, bound: value >= bound),
    "gt": ("more than", lambda value, bound: value > bound),
    "le": ("at most", lambda value, bound: value <= bound),
    "lt": ("less than", lambda value, bound: value < bound),
}


def out_of_bounds(row: Mapping[str, Any], value: Any) -> str:
    """The bound that MaxText sets for a number and that `value` breaks, as words; empty where it breaks none."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return ""
    broken = (
        f"{words} {row[name]}"
        for name, (words, holds) in _BOUNDS.items()
        if name in row and not holds(value, row[name])
    )
    return next(broken, "")
