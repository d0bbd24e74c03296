"""The translation of a run config into the keys of MaxText."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.config import HARDWARE, RunConfig
from trainer.errors import ConfigError
from trainer.starting_weights import weights_of
from trainer.tuning import lora

AUTO = "auto"
"""The value of train.checkpoint_period with which trainer/training/checkpoint_period.py chooses it."""

_OWN_SAVES = ("enable_emergency_checkpoint", "enable_multi_tier_checkpointing", "enable_continuous_checkpointing")
"""MaxText's keys with which another component decides when to write a checkpoint."""

# Defaults that Slipway sets for MaxText if the user does not. MaxText's own defaults suit benchmarks on synthetic
# data (documents are cut to their first max_target_length tokens, one pass over the data, a checkpoint
# every 10,000 steps) or fill the log (1,100 lines of config).
_DEFAULTS: dict[str, Any] = {
    "log_config": False,
    "save_checkpoint_on_completion": True,
    # All hosts write a checkpoint when they stop because one received a stop signal.
    "enable_autocheckpoint": True,
}

_TEXT_DEFAULTS: dict[str, Any] = {
    "grain_worker_count": 0,
    "grain_worker_count_eval": 0,
    "use_truncation": False,
}


def maxtext_argv(config: RunConfig) -> list[str]:
    """Return the argument list for MaxText's `initialize`: program, base config, then key=value.

    The user's `train` keys are passed unchanged. Raises ConfigError for a key that Slipway sets itself.
    """
    keys = derived_keys(config)
    return ["trainer", str(maxtext_folder() / "configs" / "base.yml")] + [
        f"{key}={json.dumps(value)}" for key, value in keys.items()
    ]


def owned_keys(config: RunConfig) -> dict[str, Any]:
    """Return the MaxText keys that Slipway sets from the other values; `train` must not contain them."""
    owned: dict[str, Any] = {
        "run_name": config.name,
        "base_output_directory": str(config.folder.parent),
        "hardware": HARDWARE[config.accelerator["kind"]],
        # jax.distributed is set up before MaxText starts, by Ray Train or by trainer/distributed.py.
        "skip_jax_distributed_system": True,
        "enable_single_controller": False,
        # MaxText counts the slices from the devices; slice.count requests them.
        "num_slices": -1,
        # trainer/tuning makes the masks.
        "use_sft": False,
        "use_dpo": False,
        "sft_train_on_completion_only": True,
        **lora.maxtext_keys(config.tuning.lora),
        # trainer/metrics.py writes it instead: evaluations truncate MaxText's file, and restarts duplicate its lines.
        "metrics_file": "",
        # MaxText has two: one is for inference, the other uploads to buckets by their URL.
        "prometheus_port": 0,
        "gcs_metrics": False,
        # trainer/telemetry/weights_and_biases.py explains why MaxText's own is not used.
        "enable_wandb": False,
        "wandb_project_name": "",
        "wandb_run_name": "",
        **tokenizer_keys(config.data.get("tokenizer") or {}),
    }
    if config.corpus is not None:
        owned |= {
            "dataset_type": "grain",
            # MaxText's pipeline reads a column `text`; trainer/training/batches.py supplies our documents.
            "grain_file_type": "parquet",
            "grain_train_files": "data.files",
            "grain_eval_files": "data.heldOut",
            "grain_train_mixture_config_path": "",
            "hf_path": "",
            "hf_train_files": "",
            "hf_eval_files": "",
            "train_data_columns": ["text"],
            "eval_data_columns": ["text"],
            "tokenize_train_data": True,
            "tokenize_eval_data": True,
            "grain_use_elastic_iterator": False,
        }
    return owned


def derived_keys(config: RunConfig) -> dict[str, Any]:
    """Return all keys for MaxText but its defaults: the user's, those that Slipway owns, and Slipway's defaults.

    Raises ConfigError for a key that Slipway sets itself, and for keys that contradict each other.
    """
    owned = owned_keys(config)
    user = {key: value for key, value in config.train.items() if value is not None}
    clash = sorted(set(user) & set(owned))
    if clash:
        raise ConfigError(f"train.{clash[0]} is set by Slipway from the run's other values; remove it from train.")
    keys = {**_DEFAULTS, **config.tuning.defaults(), **user, **owned}
    if config.tuning.lora is not None:
        keys.setdefault("weight_dtype", keys.get("dtype", "bfloat16"))  # frozen weights: no update is lost
    keys.setdefault("jax_cache_dir", str(config.folder.parent / ".jax_cache"))
    if config.tree.get("from"):
        keys["load_parameters_path"] = weights_of(config, str(keys.get("load_parameters_path") or ""))
    if keys.get("checkpoint_period") == AUTO:
        if other := [key for key in _OWN_SAVES if keys.get(key)]:
            raise ConfigError(
                f"train.checkpoint_period is auto, but train.{other[0]} decides when to write checkpoints; set a "
                "number of steps, or remove the other key."
            )
        keys["checkpoint_period"] = 1  # MaxText asks trainer/training/saving.py after each step
    if config.corpus is not None:
        if without := [key for key in _OWN_SAVES[:2] if keys.get(key)]:
            raise ConfigError(
                f"The checkpoints of train.{without[0]} do not have the position in the text, so a run that resumes "
                "would train on its beginning again; remove the key."
            )
        keys = {**_TEXT_DEFAULTS, **keys}
        keys.update(_evaluation(config, keys))
    return keys


def _evaluation(config: RunConfig, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys for evaluation of the held-out part: before the first step, after the last, and every
    `train.eval_interval` steps between them if that is set."""
    assert config.corpus is not None  # noqa: S101 - for the type checker; both callers check it
    steps = keys.get("steps")
    if not config.corpus.held_out:
        if int(keys.get("eval_interval", -1)) > 0:
            raise ConfigError("train.eval_interval is set but nothing is held out; set data.heldOut.fraction.")
        return {"eval_interval": -1}
    interval = int(keys.get("eval_interval", -1))
    if interval <= 0:
        # MaxText's default is 150,001; only the last step matters here.
        interval = int(steps) if steps and int(steps) > 0 else 150_001
    count = int(keys.get("eval_steps", 4))
    if count <= 0:
        # With -1 a host with a smaller share leaves the evaluation early, and the others wait for it indefinitely.
        raise ConfigError("train.eval_steps must be positive: every host evaluates the same number of batches.")
    start = int(keys.get("eval_start_step", interval - 1))
    return {"eval_interval": interval, "eval_steps": count, "eval_start_step": start}


def tokenizer_keys(values: Mapping[str, Any]) -> dict[str, str]:
    """Return MaxText's keys for the tokenizer of `data.tokenizer`. Raises ConfigError if a path is missing."""
    kind = str(values.get("kind") or "sentencepiece")
    path = str(values.get("path") or "")
    if not path:
        if kind != "sentencepiece":
            raise ConfigError(f"data.tokenizer.kind is {kind}, so data.tokenizer.path must name the tokenizer.")
        path = str(maxtext_folder() / "assets" / "tokenizers" / "tokenizer.llama2")
    elif not Path(path).exists():
        # MaxText's package has the tokenizers of Llama 2 and 3, Gemma, Mistral and Qwen 3; presets name only the file
        # or folder.
        own = maxtext_folder() / "assets" / "tokenizers" / path
        path = str(own) if own.exists() else path
    return {"tokenizer_type": kind, "tokenizer_path": path}


def model_number(config: RunConfig, key: str) -> int:
    """Return a number of the model: that of `train`, else the model's, else MaxText's default."""
    given = config.train.get(key)
    if given is not None:
        return int(given)
    configs = maxtext_folder() / "configs"
    for path in (configs / "models" / f"{config.train.get('model_name', 'default')}.yml", configs / "base.yml"):
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if match := re.search(rf"^{key}:\s*([0-9_]+)", text, re.M):
            return int(match[1])
    raise ConfigError(f"MaxText's base.yml has no {key}; set train.{key}.")


def sequence_length(config: RunConfig) -> int:
    """Return the number of tokens of a sequence."""
    return model_number(config, "max_target_length")


def maxtext_folder() -> Path:
    """Return the folder of the package maxtext, without importing it. Raises ConfigError if it is not installed."""
    spec = importlib.util.find_spec("maxtext")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            'The Python package maxtext is not installed; install the trainer: pip install "slipway-launcher[train]".'
        )
    return Path(spec.submodule_search_locations[0])
