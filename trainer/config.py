"""The run config: the input from the launcher (or a chart) to the trainer, and its translation for MaxText.

The run config is one JSON object: the effective values, keys unchanged, plus `accelerator`, the row of
the accelerator table with `machineType`, `topology`, `chipsPerHost`, `chips` and `hosts` (per slice)
filled in. This module derives everything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import json
import math
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trainer import hub, vocabulary
from trainer.data import Corpus, check_corpus, is_given, open_corpus
from trainer.errors import ConfigError, DownloadError
from trainer.metrics import now
from trainer.metrics import read as read_metrics
from trainer.tuning import lora, pipeline, precomputed, preferences
from trainer.tuning.settings import Tuning
from trainer.tuning.template import ChatTemplate

EARLIER_FILE = "earlier-configs.jsonl"
"""The configs that the run had before, one per line, each with the time until which it applied."""

BASE_FILE = "base.json"
"""The weights that a run reads at each start (Tuning.keeps_base): their path, and a digest of them."""

_WEIGHT_PATHS = ("load_parameters_path", "load_full_state_path")
"""MaxText's keys for the checkpoint of another run to start from."""
_LAST, _BEST = "last", "best"
"""The step in the path of weights that follow from `from: RUN` and `RUN@best` (launcher/config/weights.py)."""

AUTO = "auto"
"""The value of train.checkpoint_period with which trainer/checkpoint_period.py chooses it."""
_OWN_SAVES = ("enable_emergency_checkpoint", "enable_multi_tier_checkpointing", "enable_continuous_checkpointing")
"""MaxText's keys with which another component decides when to write a checkpoint."""

_HARDWARE = {"cpu": "cpu", "tpu": "tpu", "gpu": "gpu"}
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


@dataclass(frozen=True)
class RunConfig:
    """A valid run config; `path` is its source."""

    path: Path
    tree: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.tree["run"]["name"])

    @property
    def command(self) -> list[str]:
        """The user's own program, or [] if the run trains."""
        return [str(word) for word in self.tree["run"].get("command") or []]

    @property
    def folder(self) -> Path:
        """The folder of all the run's output: checkpoints/, tensorboard/, metrics.jsonl, events.jsonl."""
        return Path(self.tree["storage"]["mountPath"]) / self.name

    @property
    def max_restarts(self) -> int:
        """How often failed workers are restarted during the life of this process."""
        # A supervisor that restarted the whole run has used some of them.
        left = os.environ.get("SLIPWAY_RESTARTS_LEFT")
        return int(left if left is not None else self.tree["run"].get("maxRestarts", 0))

    @property
    def grace_seconds(self) -> float:
        """Seconds that the run has for its last checkpoint after a stop signal."""
        # A local run's supervisor has its own grace period.
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
        """Number of processes of the run: one per host, over all slices."""
        return int(self.accelerator["hosts"]) * self.slices

    @property
    def chips(self) -> int:
        """Number of chips of the run, over all slices."""
        return int(self.accelerator["chips"]) * self.slices

    @property
    def peak_tflops(self) -> float | None:
        """Peak bf16 TFLOP/s of one chip, or None if the table has none (a CPU)."""
        peak = self.accelerator.get("peakTflops")
        return float(peak) if peak else None

    @property
    def team(self) -> str:
        return str((self.tree.get("team") or {}).get("name") or "")

    @property
    def is_local(self) -> bool:
        """Whether the run is on this machine, not on a cluster."""
        return bool(self.tree["run"].get("kind") == "local")

    @property
    def metrics_port(self) -> int:
        """Port on which each host serves its metrics to Prometheus. 0: disabled."""
        return int((self.tree.get("tracking") or {}).get("metricsPort") or 0)

    @property
    def forecast_step_seconds(self) -> float | None:
        """Seconds of a step that a forecast found (tracking.forecastStepSeconds), or None if not known."""
        return float((self.tree.get("tracking") or {}).get("forecastStepSeconds") or 0) or None

    @property
    def wandb(self) -> Mapping[str, Any] | None:
        """The run's Weights & Biases settings: project, entity, mode. None: disabled."""
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
        """The text that `data` names, or None if MaxText's own dataset keys apply."""
        if not is_given(self.data):
            return None
        return open_corpus(self.data, self.hosts, whole_rows=self.tuning.applies, pins=hub.kept(self.folder))

    @property
    def tuning(self) -> Tuning:
        """The settings of fine-tuning; they do not apply to a run that trains on plain text."""
        return Tuning.of(self.tree)

    @cached_property
    def digest(self) -> str:
        """A digest that changes with any value of the config."""
        return hashlib.sha256(json.dumps(self.tree, sort_keys=True).encode()).hexdigest()[:16]


def read(path: Path) -> RunConfig:
    """Read a run config. Raises ConfigError with the file and the key if it is invalid."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Cannot read the run config {path}: {error.strerror}.") from error
    return _parsed(text, path)


def read_from_job(key: str) -> RunConfig:
    """Read the run config from the metadata of the current Ray job, under `key`.

    This passes the config to an existing Ray cluster, whose pods have no config file. Raises ConfigError.
    """
    try:
        # Ray passes the metadata to the driver in this variable (ray/dashboard/modules/job/job_supervisor.py).
        text = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")["metadata"][key]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"This process is not in a Ray job with a run config in its metadata ({key}).") from error
    return _parsed(str(text), Path(f"the job's {key}"))


def _parsed(text: str, path: Path) -> RunConfig:
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} is not a JSON object; `launcher submit --dry-run -o json` writes a run config.")
    for key, names in {
        "run": ("name",),
        "storage": ("mountPath",),
        "slice": (),
        "accelerator": ("name", "kind", "hosts"),
    }.items():
        section = tree.get(key)
        if not isinstance(section, dict):
            raise ConfigError(
                f"{path}: the key {key} is missing; `launcher submit --dry-run -o json` writes a complete run config."
            )
        for name in names:
            if not section.get(name):
                raise ConfigError(f"{path}: the key {key}.{name} is missing or empty.")
    if tree["accelerator"]["kind"] not in _HARDWARE:
        raise ConfigError(f"{path}: accelerator.kind is {tree['accelerator']['kind']!r}; it must be cpu, gpu or tpu.")
    return RunConfig(path, tree)


def keep(config: RunConfig) -> None:
    """Write the run config to run.json in the run's folder, which records the run after its object is deleted.

    A run on the launcher's machine already has the file. A run that continues with another config gets the new one; the
    earlier one is kept in EARLIER_FILE.
    """
    path = config.folder / "run.json"
    kept = None
    with contextlib.suppress(FileNotFoundError, ValueError):
        kept = json.loads(path.read_text(encoding="utf-8"))
    if kept != config.tree:
        if kept is not None:
            with (config.folder / EARLIER_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"until": now(), "config": kept}) + "\n")
        replace_file(path, config.tree)


def replace_file(path: Path, tree: Mapping[str, Any]) -> None:
    """Write JSON atomically."""
    # Without Ray every host writes the file, and in pods all hosts have the same process id.
    draft = path.with_suffix(f".{uuid.uuid4().hex[:12]}.tmp")
    draft.write_text(json.dumps(tree), encoding="utf-8")
    draft.replace(path)


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
    if config.train.get("managed_mldiagnostics") and not _installed("google_cloud_mldiagnostics"):
        raise ConfigError(
            "train.managed_mldiagnostics is set, but the Python package google-cloud-mldiagnostics is not installed; "
            'install it (pip install "slipway-launcher[tpu]" includes it), or set train.managed_mldiagnostics to false.'
        )
    derived = _derived(config)
    _check_weights(config)
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
        vocabulary.check(str(derived["tokenizer_type"]), tokenizer, _number(config, "vocab_size"), config.train)
    if config.corpus is None:
        if config.tuning.applies:
            raise ConfigError(f"tuning.method: {config.tuning.method} reads data.files; set them.")
        return {}
    if config.tuning.applies and not any(derived.get(key) for key in _WEIGHT_PATHS):
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
    check_corpus(config.corpus, pipeline.checker(_template(config), config.tuning) if config.tuning.applies else None)
    return config.corpus.summary()


# The packages that MaxText imports for its own dataset types.
_OF_DATASETS = {"hf": ("datasets",), "tfds": ("tensorflow_datasets", "tensorflow")}
# The keys of a dataset type, one of which names the text, and one the text of the evaluations.
_TEXT_OF_DATASETS = {
    "hf": (("hf_path",), ("hf_eval_split", "hf_eval_files")),
    "grain": (
        ("grain_train_files", "grain_train_mixture_config_path", "hf_path", "dataset_path"),
        ("grain_eval_files", "hf_path", "dataset_path"),
    ),
}


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


def saved_steps(config: RunConfig) -> int:
    """Return the number of steps that the last whole checkpoint contains; 0 if there is none."""
    if config.train.get("enable_checkpointing") is False:
        return 0
    return max((step + 1 for step in _steps(config.folder / "checkpoints")), default=0)


def _check_weights(config: RunConfig) -> None:
    """Raise ConfigError if the weights to start from are missing. Most runs with a checkpoint no longer read them."""
    frozen = config.tuning.keeps_base
    if saved_steps(config) and not frozen:
        return
    for key in _WEIGHT_PATHS:
        path = config.train.get(key)
        if frozen and path and key == "load_parameters_path":
            path = _weights(config, str(path))
        if not isinstance(path, str) or not path or "://" in path:
            continue
        _refuse_adapters(key, Path(path), config.tree.get("from"))
        if not Path(path).exists():
            if config.tree.get("from"):
                if Path(path).parent.name in (_LAST, _BEST):  # _weights has found the step
                    continue
                if (Path(path).parent / "config.json").is_file():
                    raise ConfigError(
                        f"from: {config.tree['from']} is a model in Hugging Face format; convert it with launcher "
                        f"import {config.tree['from']} --to WEIGHTS, and set from to that folder."
                    )
                raise ConfigError(f"from: {config.tree['from']}: {path} does not exist.{_steps_beside(Path(path))}")
            raise ConfigError(
                f"train.{key}: {path} does not exist; set the items folder of a checkpoint "
                "(.../NAME/checkpoints/STEP/items)."
            )


def _refuse_adapters(key: str, items: Path, given: object) -> None:
    """Raise ConfigError if the checkpoint is that of a run with adapters. `given` is the value of `from`."""
    if items.parent.parent.name != "checkpoints" or Tuning.of(_object(items.parents[2] / "run.json")).lora is None:
        return
    run = items.parents[2]
    raise ConfigError(
        f"{f'from: {given}' if given else f'train.{key}: {items}'}: the checkpoints of {run.name} have adapters only; "
        f"write a whole model with launcher export {run.name} --merge --to FOLDER, import it with launcher import "
        "FOLDER --to WEIGHTS, and set from to WEIGHTS."
    )


def _object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if there is none."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _weights(config: RunConfig, path: str) -> str:
    """Return the path of the weights to start from, with the step of a run that `from` names without one, or @best.

    All hosts must read the same step, so the run must have reached its last step. Raises ConfigError.
    """
    items, frozen = Path(path), config.tuning.keeps_base
    if frozen and (kept := _base(config, config.folder)):
        return str(kept["weights"])
    if items.parent.name not in (_LAST, _BEST) or (saved_steps(config) and not frozen):  # a checkpoint has all weights
        return path
    folder, source = items.parents[1], config.tree["from"]
    steps = _steps(folder)
    if not steps:
        raise ConfigError(f"from: the run {source} has no checkpoint in {folder}.")
    train = _object(folder.parent / "run.json").get("train")
    wanted = train.get("steps") if isinstance(train, dict) else None
    if not isinstance(wanted, int) or steps[-1] + 1 < wanted:
        known = f"{steps[-1] + 1} of its {wanted} steps" if isinstance(wanted, int) else "an unknown number of steps"
        raise ConfigError(
            f"from: the last checkpoint of the run {source} has {known}; to start from it, set from: "
            f"{source}@{steps[-1]}."
        )
    step = steps[-1] if items.parent.name == _LAST else _best(folder.parent / "metrics.jsonl", steps, source)
    return str(folder / str(step) / items.name)


def _best(metrics: Path, steps: Sequence[int], source: str) -> int:
    """Return the step whose checkpoint has the lowest held-out loss, as in launcher checkpoints. Raises ConfigError."""
    losses: dict[int, float] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in read_metrics(metrics):
            if isinstance(loss := line.get("eval_loss"), int | float) and math.isfinite(loss):
                losses[int(line["step"])] = loss
    # An evaluation counts the finished steps: that of a checkpoint is the last one before its step + 1.
    newest = {step: max((each for each in losses if each <= step + 1), default=None) for step in steps}
    measured = [(losses[at], step - at, step) for step, at in newest.items() if at is not None]
    if not measured:
        raise ConfigError(f"from: no checkpoint of {source} has a held-out loss; set from to a run and a step of it.")
    return min(measured)[2]


def keep_base(config: RunConfig) -> None:
    """Write BASE_FILE at the first start. Raises ConfigError if the weights are not those of the first start."""
    if not config.tuning.keeps_base:
        return
    path = _weights(config, str(config.train.get("load_parameters_path") or ""))
    files = [Path(path) / name for name in ("_METADATA", "manifest.ocdbt")]
    digest = hashlib.sha256()
    if "://" not in path:
        for file in files:
            digest.update(file.read_bytes() if file.is_file() else b"")
    kept = _base(config, config.folder)
    if kept and kept["digest"] != digest.hexdigest() and saved_steps(config):
        raise ConfigError(
            f"The weights in {path} have changed since {config.name} started from them, and each start reads them; "
            "restore them, or submit under a new name."
        )
    record = {"given": _given(config), "weights": path, "digest": digest.hexdigest()}
    if kept != record:
        replace_file(config.folder / BASE_FILE, record)


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


def _base(config: RunConfig, run: Path) -> dict[str, Any]:
    """Return the content of BASE_FILE; {} if there is none, or for other weights."""
    kept = _object(run / BASE_FILE)
    return kept if kept.get("given") == _given(config) else {}


def _given(config: RunConfig) -> list[str]:
    return [str(config.tree.get("from") or ""), str(config.train.get("load_parameters_path") or "")]


def frozen_weights(config: RunConfig, run: Path | None = None) -> str:
    """Return the path of the weights that the run's adapters change. `run` is the run's folder, if it was moved."""
    path = str(config.train.get("load_parameters_path") or "")
    kept = _base(config, run or config.folder)
    return str(kept["weights"]) if kept else _weights(config, path)


def _steps(folder: Path) -> list[int]:
    """Return the numbers of the whole checkpoints in a folder, in order."""
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []


def _steps_beside(items: Path) -> str:
    steps = _steps(items.parents[1])
    return f" Its checkpoints are: {', '.join(map(str, steps[-10:]))}." if steps else ""


def maxtext_argv(config: RunConfig) -> list[str]:
    """Return the argument list for MaxText's `initialize`: program, base config, then key=value.

    The user's `train` keys are passed unchanged. Raises ConfigError for a key that Slipway sets itself.
    """
    keys = _derived(config)
    return ["trainer", str(maxtext_folder() / "configs" / "base.yml")] + [
        f"{key}={json.dumps(value)}" for key, value in keys.items()
    ]


def owned_keys(config: RunConfig) -> dict[str, Any]:
    """Return the MaxText keys that Slipway sets from the other values; `train` must not contain them."""
    owned: dict[str, Any] = {
        "run_name": config.name,
        "base_output_directory": str(config.folder.parent),
        "hardware": _HARDWARE[config.accelerator["kind"]],
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
            # MaxText's Parquet pipeline reads documents from a column `text`; trainer/loop.py supplies ours.
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
    keys = {**_DEFAULTS, **config.tuning.defaults(), **user, **owned}
    if config.tuning.lora is not None:
        keys.setdefault("weight_dtype", keys.get("dtype", "bfloat16"))  # frozen weights: no update is lost
    keys.setdefault("jax_cache_dir", str(config.folder.parent / ".jax_cache"))
    if config.tree.get("from"):
        keys["load_parameters_path"] = _weights(config, str(keys.get("load_parameters_path") or ""))
    if keys.get("checkpoint_period") == AUTO:
        if other := [key for key in _OWN_SAVES if keys.get(key)]:
            raise ConfigError(
                f"train.checkpoint_period is auto, but train.{other[0]} decides when to write checkpoints; set a "
                "number of steps, or remove the other key."
            )
        keys["checkpoint_period"] = 1  # MaxText asks trainer/loop.py after each step
    if config.corpus is not None:
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


def _number(config: RunConfig, key: str) -> int:
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


def reader(config: RunConfig) -> pipeline.Reader:
    """Return the reader of the examples of fine-tuning. Raises ConfigError if there is no chat template."""
    return pipeline.Reader(_template(config), config.tuning, sequence_length(config), reference_table(config))


def reference_table(config: RunConfig) -> precomputed.Table | None:
    """Return the file with the log probabilities of the reference, which belong to the weights of the first start."""
    if not config.tuning.is_precomputed:
        return None
    base = json.dumps(_base(config, config.folder), sort_keys=True)
    return precomputed.Table(config.folder / f"reference-{hashlib.sha256(base.encode()).hexdigest()[:12]}.bin")


def _template(config: RunConfig) -> ChatTemplate:
    keys = tokenizer_keys(config.data.get("tokenizer") or {})
    return pipeline.chat_template(config.tuning, keys["tokenizer_path"], keys["tokenizer_type"])


def sequence_length(config: RunConfig) -> int:
    """Return the number of tokens of a sequence."""
    return _number(config, "max_target_length")


def maxtext_folder() -> Path:
    spec = importlib.util.find_spec("maxtext")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            'The Python package maxtext is not installed; install the trainer: pip install "slipway-launcher[train]".'
        )
    return Path(spec.submodule_search_locations[0])
