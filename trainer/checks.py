"""The checks of a run config that need neither JAX nor Ray nor MaxText."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer import hub, vocabulary
from trainer.config import RunConfig, replace_file
from trainer.data import check_corpus
from trainer.errors import ConfigError, DownloadError
from trainer.maxtext_keys import derived_keys, model_number
from trainer.starting_weights import WEIGHT_PATHS, check_weights
from trainer.tuning import pipeline, preferences, reading
from trainer.tuning.template import LostText

# The packages that MaxText imports for its own dataset types.
_OF_DATASETS = {"hf": ("datasets",), "tfds": ("tensorflow_datasets", "tensorflow")}

# The packages of MaxText's features of Google Cloud, by the key that enables one. The extra `train` does not have them.
_PACKAGES = {
    "managed_mldiagnostics": "google-cloud-mldiagnostics",
    "enable_goodput_recording": "ml-goodput-measurement",
    "use_vertex_tensorboard": "cloud-accelerator-diagnostics",
}

# The keys of MaxText that name a file, apart from those of tokenizers, of text and of weights.
_FILES = ("compiled_trainstep_file", "quant_cfg_path")

# The keys of a dataset type, one of which names the text, and one the text of the evaluations.
_TEXT_OF_DATASETS = {
    "hf": (("hf_path",), ("hf_eval_split", "hf_eval_files")),
    "grain": (
        ("grain_train_files", "grain_train_mixture_config_path", "hf_path", "dataset_path"),
        ("grain_eval_files", "hf_path", "dataset_path"),
    ),
}


def check(config: RunConfig) -> dict[str, Any]:
    """Check everything that needs no JAX, Ray or MaxText: keys that Slipway owns, the data, the tokenizer.

    Returns a summary of the data (empty if MaxText reads its own). Raises ConfigError.
    """
    for module in ("maxtext", "jax", "grain"):
        if importlib.util.find_spec(module) is None:
            raise ConfigError(
                f"The Python package {module} is not installed; install the trainer: "
                'pip install "slipway-launcher[train]".'
            )
    if config.wandb is not None and not _installed("wandb"):
        raise ConfigError(
            "tracking.wandb.project is set, but the Python package wandb is not installed; install it "
            '(pip install "slipway-launcher[train]" includes it), or leave tracking.wandb.project empty.'
        )
    for key, package in _PACKAGES.items():
        if config.train.get(key) and not _installed(package.replace("-", "_")):
            raise ConfigError(
                f"train.{key} is set, but the Python package {package} is not installed; install it "
                f'(pip install "slipway-launcher[tpu]" includes it), or set train.{key} to false.'
            )
    derived = derived_keys(config)
    for key in _FILES:
        if (file := str(derived.get(key) or "")) and not Path(file).is_file():
            raise ConfigError(f"train.{key}: {file} is not a file; set the path of one, or remove the key.")
    for key in ("dump_hlo", "dump_jaxpr"):
        if derived.get(key) and not str(derived.get(f"{key}_gcs_dir") or "").startswith("gs://"):
            raise ConfigError(f"train.{key} copies files to a bucket; set train.{key}_gcs_dir: gs://BUCKET/FOLDER.")
    check_weights(config)
    if missing := [each for each in _OF_DATASETS.get(str(derived.get("dataset_type")), ()) if not _installed(each)]:
        raise ConfigError(
            f"train.dataset_type: {derived['dataset_type']} needs the Python package {missing[0]}, which is not "
            "installed here; install it, or use data.files."
        )
    if config.corpus is None:
        _check_dataset(str(derived.get("dataset_type")), config.train)
    if config.corpus is None and derived.get("dataset_type") == "hf" and derived["tokenizer_type"] != "huggingface":
        raise ConfigError(
            f"data.tokenizer.kind is {derived['tokenizer_type']}; for train.dataset_type: hf, MaxText requires "
            "huggingface."
        )
    if config.corpus is not None or derived.get("dataset_type") != "synthetic":
        tokenizer = str(derived["tokenizer_path"])
        if derived["tokenizer_type"] != "huggingface" and not Path(tokenizer).is_file():
            raise ConfigError(
                f"data.tokenizer.path: {tokenizer} is not a file; set the path of a tokenizer file, or leave it empty."
            )
        vocabulary.check(str(derived["tokenizer_type"]), tokenizer, model_number(config, "vocab_size"), config.train)
    if config.corpus is None:
        if config.tuning.applies:
            raise ConfigError(f"tuning.method: {config.tuning.method} reads data.files; set them.")
        return {}
    if config.tuning.applies and not any(derived.get(key) for key in WEIGHT_PATHS):
        raise ConfigError(
            f"tuning.method: {config.tuning.method} changes a model that exists; set from to a run or to imported "
            "weights."
        )
    if config.tuning.lora is not None and not config.tuning.applies:
        raise ConfigError("tuning.adapter changes a model that exists; set tuning.method to sft, dpo or orpo.")
    if config.tuning.reads_pairs:
        preferences.require_simple_loss(derived)
    if config.tuning.keeps_base and not derived.get("load_parameters_path"):
        raise ConfigError(
            f"tuning.method: {config.tuning.method} compares with the weights that it starts from; set from, or "
            "train.load_parameters_path."
        )
    summary = config.corpus.summary()
    if not config.tuning.applies:
        check_corpus(config.corpus)
        return summary
    lost = LostText(reading.chat_template(config))
    check_corpus(config.corpus, pipeline.checker(lost, config.tuning))
    return summary | {"left_out": " ".join(filter(None, (config.corpus.left_out, lost.sentence())))}


def _check_dataset(kind: str, train: Mapping[str, Any]) -> None:
    """Raise ConfigError if a dataset type of MaxText lacks the key that names its text."""
    text, evaluated = _TEXT_OF_DATASETS.get(kind, ((), ()))
    if text and not any(train.get(key) for key in text):
        raise ConfigError(f"train.dataset_type: {kind} has no text; set train.{text[0]}, or use data.files.")
    every = train.get("eval_interval")
    if evaluated and isinstance(every, int) and every > 0 and not any(train.get(key) for key in evaluated):
        raise ConfigError(
            f"train.eval_interval is {every}, but train.dataset_type: {kind} has no text for evaluations; set "
            f"train.{evaluated[0]}, or train.eval_interval: -1."
        )


def _installed(package: str) -> bool:
    # importlib.util.find_spec fails if trainer/deferred_imports.py has replaced the module.
    return importlib.machinery.PathFinder.find_spec(package) is not None


def keep_data_sets(config: RunConfig) -> None:
    """Write the commits of the hub's data sets at the first start. The first host that writes decides.

    Raises DownloadError if another host has decided for another commit: a restart reads that one.
    """
    path, pins = config.folder / hub.PINS_FILE, config.corpus.pins if config.corpus is not None else {}
    if not pins:
        return
    with contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
        json.dump(pins, file)
        return
    before = hub.kept(config.folder)
    if changed := [entry for entry in before.keys() & pins.keys() if before[entry] != pins[entry]]:
        raise DownloadError(f"{changed[0]} has changed while the run started; start again.")
    if pins.keys() - before.keys():  # the run continues with other data
        replace_file(path, {**before, **pins})
