"""The run config: the input from the launcher (or a chart) to the trainer.

The run config is one JSON object: the effective values, keys unchanged, plus `accelerator`, the row of
the accelerator table with `machineType`, `topology`, `chipsPerHost`, `chips` and `hosts` (per slice)
filled in. starting_weights.py, maxtext_keys.py and checks.py derive everything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trainer import hub
from trainer.data import Corpus, is_given, open_corpus
from trainer.errors import ConfigError
from trainer.metrics import now
from trainer.tuning.settings import Tuning

EARLIER_FILE = "earlier-configs.jsonl"
"""The configs that the run had before, one per line, each with the time until which it applied."""

HARDWARE = {"cpu": "cpu", "tpu": "tpu", "gpu": "gpu"}


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
    def restarts_slices(self) -> bool:
        """Whether JobSet creates again only the pods of a failed slice, and those of the other slices wait for them."""
        return bool(self.tree["run"].get("restartAction") == "RestartJob")

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
    if tree["accelerator"]["kind"] not in HARDWARE:
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
