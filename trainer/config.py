"""The run config: what the launcher (or a chart) hands to the trainer, and what MaxText makes of it.

The run config is one JSON object: the effective values, keys unchanged, plus `accelerator`, the row of
the accelerator table with `machineType`, `topology`, `chipsPerHost`, `chips` and `hosts` (per slice)
filled in. Everything else is derived here.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trainer.data import Corpus, check_corpus, is_given, open_corpus
from trainer.errors import ConfigError

_HARDWARE = {"cpu": "cpu", "tpu": "tpu", "gpu": "gpu"}
# Values of MaxText's that Slipway chooses where the user did not: its own suit benchmarks on synthetic
# data (documents are cut to their first max_target_length tokens, one pass over the data, a checkpoint
# every 10,000 steps) or fill the log (1,100 lines of config).
_DEFAULTS: dict[str, Any] = {
    "log_config": False,
    "save_checkpoint_on_completion": True,
    # Hosts that stop for one that is told to end take a checkpoint along.
    "enable_autocheckpoint": True,
}
_TEXT_DEFAULTS: dict[str, Any] = {
    "grain_worker_count": 0,
    "grain_worker_count_eval": 0,
    "use_truncation": False,
}


@dataclass(frozen=True)
class RunConfig:
    """A run config that has been read and found whole; `path` says where it was read from."""

    path: Path
    tree: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.tree["run"]["name"])

    @property
    def command(self) -> list[str]:
        """The user's own program, or [] where the run trains."""
        return [str(word) for word in self.tree["run"].get("command") or []]

    @property
    def folder(self) -> Path:
        """Where the run keeps all that it writes: checkpoints/, tensorboard/, metrics.jsonl, events.jsonl."""
        return Path(self.tree["storage"]["mountPath"]) / self.name

    @property
    def max_restarts(self) -> int:
        """How often workers that failed are restarted, in this process's life."""
        # A supervisor that has restarted the whole run has spent some of them.
        left = os.environ.get("SLIPWAY_RESTARTS_LEFT")
        return int(left if left is not None else self.tree["run"].get("maxRestarts", 0))

    @property
    def grace_seconds(self) -> float:
        """How long a run that is told to end has for its last checkpoint."""
        # A local run's supervisor has a patience of its own.
        given = os.environ.get("SLIPWAY_GRACE_SECONDS")
        return float(given if given is not None else self.tree["run"].get("graceSeconds", 30))

    @property
    def accelerator(self) -> Mapping[str, Any]:
        row: Mapping[str, Any] = self.tree["accelerator"]
        return row

    @property
    def slices(self) -> int:
        return int(self.tree["slice"].get("count", 1))

    @property
    def hosts(self) -> int:
        """Processes of the whole run: one a host, over all slices."""
        return int(self.accelerator["hosts"]) * self.slices

    @property
    def chips(self) -> int:
        """Chips of the whole run, over all slices."""
        return int(self.accelerator["chips"]) * self.slices

    @property
    def peak_tflops(self) -> float | None:
        """Peak bf16 TFLOP/s of one chip, or None where the table has none (a CPU)."""
        peak = self.accelerator.get("peakTflops")
        return float(peak) if peak else None

    @property
    def team(self) -> str:
        return str((self.tree.get("team") or {}).get("name") or "")

    @property
    def is_local(self) -> bool:
        """Whether the run is one of this machine's, and not a cluster's."""
        return bool(self.tree["run"].get("kind") == "local")

    @property
    def metrics_port(self) -> int:
        """Where each host serves its metrics to Prometheus; 0: nowhere."""
        return int((self.tree.get("tracking") or {}).get("metricsPort") or 0)

    @property
    def wandb(self) -> Mapping[str, Any] | None:
        """Where in Weights & Biases the run goes: project, entity, mode; None: nowhere."""
        keys: Mapping[str, Any] = (self.tree.get("tracking") or {}).get("wandb") or {}
        return keys if keys.get("project") else None

    @property
    def train(self) -> Mapping[str, Any]:
        keys: Mapping[str, Any] = self.tree.get("train") or {}
        return keys

    @property
    def data(self) -> Mapping[str, Any]:
        keys: Mapping[str, Any] = self.tree.get("data") or {}
        return keys

    @cached_property
    def corpus(self) -> Corpus | None:
        """The text that `data` names, or None where MaxText's own dataset keys apply."""
        return open_corpus(self.data) if is_given(self.data) else None

    @cached_property
    def digest(self) -> str:
        """Changes with any value of the config."""
        return hashlib.sha256(json.dumps(self.tree, sort_keys=True).encode()).hexdigest()[:16]


def read(path: Path) -> RunConfig:
    """Read a run config; raises ConfigError with the file and the key where it cannot be one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Cannot read the run config {path}: {error.strerror}.") from error
    return _parsed(text, path)


def read_from_job(key: str) -> RunConfig:
    """The run config that the Ray job of which this is the driver carries in its metadata, under `key`.

    So it reaches a Ray cluster that stands already, whose pods have no file for it. Raises ConfigError.
    """
    try:
        # Ray hands the metadata to the driver in this variable (ray/dashboard/modules/job/job_supervisor.py).
        text = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")["metadata"][key]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"This is no Ray job with a run config in its metadata ({key}).") from error
    return _parsed(str(text), Path(f"the job's {key}"))


def _parsed(text: str, path: Path) -> RunConfig:
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON: {error}.") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} holds no JSON object; it is written by `launcher submit --dry-run -o json`.")
    for key, names in {
        "run": ("name",),
        "storage": ("mountPath",),
        "slice": (),
        "accelerator": ("name", "kind", "hosts"),
    }.items():
        section = tree.get(key)
        if not isinstance(section, dict):
            raise ConfigError(
                f"{path}: the key {key} is missing; `launcher submit --dry-run -o json` writes a whole one."
            )
        for name in names:
            if not section.get(name):
                raise ConfigError(f"{path}: the key {key}.{name} is missing or empty.")
    if tree["accelerator"]["kind"] not in _HARDWARE:
        raise ConfigError(f"{path}: accelerator.kind is {tree['accelerator']['kind']!r}; it is cpu, gpu or tpu.")
    return RunConfig(path, tree)


def keep(config: RunConfig) -> None:
    """Leave the run config as run.json in the run's folder, which so tells what the run was when its object is gone.

    A run of the launcher's machine has it there already; a run that goes on with another config gets the new one.
    """
    path = config.folder / "run.json"
    kept = None
    with contextlib.suppress(FileNotFoundError, ValueError):
        kept = json.loads(path.read_text(encoding="utf-8"))
    if kept != config.tree:
        replace_file(path, config.tree)


def replace_file(path: Path, tree: Mapping[str, Any]) -> None:
    """Write JSON in one step."""
    # Without Ray every host writes it, and in pods they all have the same process id.
    draft = path.with_suffix(f".{uuid.uuid4().hex[:12]}.tmp")
    draft.write_text(json.dumps(tree), encoding="utf-8")
    draft.replace(path)


def check(config: RunConfig) -> dict[str, Any]:
    """All that can be told without JAX, Ray or MaxText: keys that Slipway owns, the data, the tokenizer.

    Returns a summary of the data (empty where MaxText reads its own). Raises ConfigError.
    """
    for module in ("maxtext", "jax", "grain"):
        if importlib.util.find_spec(module) is None:
            raise ConfigError(
                f'The Python package {module} is not installed; install the trainer: pip install "slipway[train]".'
            )
    if config.wandb is not None and importlib.util.find_spec("wandb") is None:
        raise ConfigError(
            "tracking.wandb.project is set, but the Python package wandb is not installed; install it "
            '(pip install "slipway[train]" brings it), or leave tracking.wandb.project empty.'
        )
    derived = _derived(config)
    if config.corpus is None:
        return {}
    for part, units in (("train", config.corpus.train), ("held-out", config.corpus.held_out)):
        if units and len(units) < config.hosts:
            raise ConfigError(
                f"data: the {part} part has {len(units)} pieces for {config.hosts} hosts; "
                "give more text" + (" or a larger data.heldOut.fraction." if part == "held-out" else ".")
            )
    tokenizer = str(derived["tokenizer_path"])
    if derived["tokenizer_type"] != "huggingface" and not Path(tokenizer).is_file():
        raise ConfigError(f"data.tokenizer.path: {tokenizer} is no file; name a tokenizer file, or leave it empty.")
    if derived["tokenizer_type"] == "sentencepiece":
        _check_vocabulary(config, tokenizer)
    check_corpus(config.corpus)
    return config.corpus.summary()


def maxtext_argv(config: RunConfig) -> list[str]:
    """The argument list that MaxText's `initialize` takes: program, base config, then key=value.

    The user's `train` keys are passed as they are; raises ConfigError for one that Slipway sets itself.
    """
    keys = _derived(config)
    return ["trainer", str(_maxtext_folder() / "configs" / "base.yml")] + [
        f"{key}={json.dumps(value)}" for key, value in keys.items()
    ]


def owned_keys(config: RunConfig) -> dict[str, Any]:
    """The MaxText keys that Slipway sets from the other values; `train` must not name them."""
    owned: dict[str, Any] = {
        "run_name": config.name,
        "base_output_directory": str(config.folder.parent),
        "hardware": _HARDWARE[config.accelerator["kind"]],
        # jax.distributed is set up before MaxText starts: by Ray Train, or by trainer/distributed.py.
        "skip_jax_distributed_system": True,
        "enable_single_controller": False,
        # Counted by MaxText from the devices; slice.count is what asks for them.
        "num_slices": -1,
        # Written by trainer/metrics.py instead: MaxText's is truncated by evaluations and doubled by restarts.
        "metrics_file": "",
        # Of its two, one is for inference and the other uploads to buckets by their URL.
        "prometheus_port": 0,
        "gcs_metrics": False,
        # trainer/telemetry/weights_and_biases.py says why not MaxText's own.
        "enable_wandb": False,
        "wandb_project_name": "",
        "wandb_run_name": "",
        **_tokenizer(config.data.get("tokenizer") or {}),
    }
    if config.corpus is not None:
        owned |= {
            "dataset_type": "grain",
            # MaxText's pipeline for Parquet takes documents in a column `text`; trainer/loop.py gives it ours.
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


def _derived(config: RunConfig) -> dict[str, Any]:
    owned = owned_keys(config)
    user = {key: value for key, value in config.train.items() if value is not None}
    clash = sorted(set(user) & set(owned))
    if clash:
        raise ConfigError(f"train.{clash[0]} is set by Slipway from the run's other values; remove it from train.")
    keys = {**_DEFAULTS, **user, **owned}
    keys.setdefault("jax_cache_dir", str(config.folder.parent / ".jax_cache"))
    if config.corpus is not None:
        keys = {**_TEXT_DEFAULTS, **keys}
        keys.update(_evaluation(config, keys))
    return keys


def _evaluation(config: RunConfig, keys: Mapping[str, Any]) -> dict[str, Any]:
    """When the held-out part is evaluated: before the first step and after the last, and every
    `train.eval_interval` steps between them where that is set."""
    assert config.corpus is not None  # noqa: S101 - for the type checker; both callers have asked
    steps = keys.get("steps")
    if not config.corpus.held_out:
        if int(keys.get("eval_interval", -1)) > 0:
            raise ConfigError("train.eval_interval is set but nothing is held out; set data.heldOut.fraction.")
        return {"eval_interval": -1}
    interval = int(keys.get("eval_interval", -1))
    if interval <= 0:
        # MaxText's own default is 150,001; only the last step matters here.
        interval = int(steps) if steps and int(steps) > 0 else 150_001
    count = int(keys.get("eval_steps", 4))
    if count <= 0:
        # With -1 a host whose share is smaller leaves the evaluation early and the others wait for it for ever.
        raise ConfigError("train.eval_steps must be positive: every host evaluates the same number of batches.")
    start = int(keys.get("eval_start_step", interval - 1))
    return {"eval_interval": interval, "eval_steps": count, "eval_start_step": start}


def _tokenizer(values: Mapping[str, Any]) -> dict[str, str]:
    kind = str(values.get("kind") or "sentencepiece")
    path = str(values.get("path") or "")
    if not path:
        if kind != "sentencepiece":
            raise ConfigError(f"data.tokenizer.kind is {kind}, so data.tokenizer.path must name the tokenizer.")
        path = str(_maxtext_folder() / "assets" / "tokenizers" / "tokenizer.llama2")
    elif kind != "huggingface" and not Path(path).is_file():
        # MaxText's package has the tokenizers of Llama 2 and 3, Gemma and Mistral; presets name them by the file alone.
        own = _maxtext_folder() / "assets" / "tokenizers" / path
        path = str(own) if own.is_file() else path
    return {"tokenizer_type": kind, "tokenizer_path": path}


def _check_vocabulary(config: RunConfig, tokenizer: str) -> None:
    """A piece that the model has no row for would train it on nothing, without a word."""
    import sentencepiece

    try:
        pieces = sentencepiece.SentencePieceProcessor(model_file=tokenizer).vocab_size()
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"data.tokenizer.path: {tokenizer} is no sentencepiece model; name one, or set the kind."
        ) from error
    rows = _vocabulary(config)
    if pieces > rows:
        raise ConfigError(
            f"data.tokenizer.path: {tokenizer} has {pieces:,} pieces, but the model has room for {rows:,}; "
            f"set train.vocab_size: {pieces}, or name the model's own tokenizer."
        )


def _vocabulary(config: RunConfig) -> int:
    """The model's vocabulary: train.vocab_size, else the model's, else MaxText's default."""
    given = config.train.get("vocab_size")
    if given is not None:
        return int(given)
    configs = _maxtext_folder() / "configs"
    for path in (configs / "models" / f"{config.train.get('model_name', 'default')}.yml", configs / "base.yml"):
        found = (
            re.search(r"^vocab_size:\s*([0-9_]+)", path.read_text(encoding="utf-8"), re.M) if path.exists() else None
        )
        if found:
            return int(found[1])
    raise ConfigError("MaxText's base.yml names no vocab_size; set train.vocab_size.")


def _maxtext_folder() -> Path:
    spec = importlib.util.find_spec("maxtext")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            'The Python package maxtext is not installed; install the trainer: pip install "slipway[train]".'
        )
    return Path(spec.submodule_search_locations[0])
