"""Find the model of a name: a checkpoint of a run, or a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.backends import run_config
from launcher.backends.base import Backend, RunStatus
from launcher.backends.local.record import CONFIG
from launcher.backends.lookup import NoSuchRun
from launcher.config.values.tree import Values
from launcher.errors import LauncherError, UsageError
from launcher.json_object import json_object
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.common.named_runs import find_best
from launcher.products.common.storage import is_path, is_url
from launcher.products.models.inference import child, memory
from launcher.products.models.weights import checkpoints, hub
from launcher.products.models.weights.export import ADAPTER_CONFIG

MODEL_CONFIG = "config.json"
# trainer/inference/exported.py exports into this folder of the run, by the step. The file shows that it is whole.
EXPORT, COMPLETE = "export", "slipway.json"
_ONLY_ADAPTER = "It is an adapter. Use its run, or write a whole model: launcher export RUN --merge --to FOLDER"


@dataclass(frozen=True)
class Source:
    """A model. `model` is its Hugging Face folder on this machine, which may not exist yet for a run's checkpoint.

    `run` is the folder of the run on this machine, None for a Hugging Face folder. `step` is the number of the
    checkpoint and `config` the config of the run.
    """

    name: str
    model: Path
    run: Path | None = None
    step: int | None = None
    config: Mapping[str, Any] | None = None

    @property
    def arguments(self) -> list[str]:
        """The options of trainer.generate and trainer.evaluate that select the model."""
        if self.run is None:
            return ["--model", str(self.model)]
        return ["--config", str(self.run / CONFIG), "--folder", str(self.run), "--step", str(self.step)]

    @property
    def label(self) -> str:
        return self.name if self.step is None else f"{self.name}, checkpoint {self.step}"

    @property
    def exported(self) -> bool:
        return self.run is None or (self.model / COMPLETE).is_file()

    def model_config(self) -> dict[str, Any]:
        """Return config.json of the Hugging Face folder. Raises LauncherError if it is damaged."""
        path = self.model / MODEL_CONFIG
        try:
            config = json_object(path.read_bytes())
        except OSError as error:
            raise LauncherError(f"{path} cannot be read: {error.strerror}.") from error
        if config is None:
            raise LauncherError(f"{path} is damaged: it is not a JSON object.")
        return config


@dataclass(frozen=True)
class ClusterSource:
    """A checkpoint of a run on a cluster, which only its pods can use."""

    backend: Backend
    status: RunStatus
    step: int
    extra: Values = field(default_factory=Values.empty)
    """Values that override those of the run in the job that uses it."""

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def label(self) -> str:
        return f"{self.name}, checkpoint {self.step}"


def resolve(
    name: str, step: str | None, target: Target = DEFAULT_TARGET, say: Callable[[str], None] = lambda _: None
) -> Source | ClusterSource:
    """Return the model of `name`: a run, a run's folder, or a Hugging Face folder (both with a slash in it: ./NAME).

    The model of a sweep is that of its best run. `step` is the number of a checkpoint, "best", "last", or None for the
    last one. Raises LauncherError if there is no such model or checkpoint.
    """
    if is_url(name):
        raise LauncherError(
            f"{name} is in a bucket, where a model cannot run.",
            "Give the name of its run, or a copy of a Hugging Face folder on this machine: ./FOLDER",
        )
    if name.startswith(hub.PREFIX):
        repository = hub.repository(name)
        folder = repository.rpartition("/")[2]
        raise LauncherError(
            f"{name} is on Hugging Face, but a model runs from a folder of this machine.",
            f"Download it: hf download {repository} --local-dir ./{folder}, and then use ./{folder}.",
        )
    if is_path(name):
        return _of_folder(name, Path(name).expanduser().absolute(), step)
    try:
        backend, status = find_best(name, target, say)
    except NoSuchRun as error:
        if name and Path(name).is_dir():
            error.hint = f"If you mean the folder, write ./{name}. {error.hint}".strip()
        raise
    try:
        checkpoint = checkpoints.of_run(backend, status).select(step or checkpoints.LAST)
    except checkpoints.NotListed:
        if step is None or not step.isdecimal():
            raise
        return ClusterSource(backend, status, int(step))  # the job reports whether it exists
    if status.in_cluster:
        return ClusterSource(backend, status, checkpoint.step)
    return _of_run(status.name, Path(status.folder), checkpoint.step, backend.config_of(status.name))


def _of_folder(name: str, folder: Path, step: str | None) -> Source:
    if not folder.is_dir():
        raise LauncherError(f"There is no folder {folder}.")
    if (folder / MODEL_CONFIG).is_file() and not (folder / CONFIG).is_file():
        if step is not None:
            raise UsageError(f"--step selects a checkpoint of a run, but {folder} is a Hugging Face folder.")
        return Source(name, folder)
    if not (folder / CONFIG).is_file():
        raise LauncherError(
            f"{folder} is neither a Hugging Face folder nor the folder of a run: it has no {MODEL_CONFIG} and no "
            f"{CONFIG}.",
            _ONLY_ADAPTER if (folder / ADAPTER_CONFIG).is_file() else "",
        )
    checkpoint = checkpoints.of_folder(folder.name, folder).select(step or checkpoints.LAST)
    try:
        config = run_config.parse((folder / CONFIG).read_bytes())
    except OSError as error:
        raise LauncherError(f"{folder / CONFIG} cannot be read: {error.strerror}.") from error
    if not config:
        raise LauncherError(f"{folder / CONFIG} is damaged: it is not a run config.")
    return _of_run(folder.name, folder, checkpoint.step, config)


def _of_run(name: str, folder: Path, step: int, config: Mapping[str, Any]) -> Source:
    return Source(name, folder / EXPORT / str(step), folder, step, config)


def prepare(source: Source, tokens: int | None, *, extra: str, say: Callable[[str], None]) -> None:
    """Export the checkpoint if necessary, and check that this machine has the memory that the model needs.

    `tokens` is the length of the text that the model must remember, None for its whole context. `extra` is the extra
    of the launcher that is needed. Raises LauncherError before anything is started if the model does not fit.
    """
    child.require(extra)
    if not source.exported:
        memory.check_run(source.name, (source.config or {}).get("train") or {}, tokens)
        say(f"Exporting the checkpoint {source.step} of {source.name} to {source.model}, which is done once.")
        child.run("trainer.inference.exported", source.arguments)
    memory.check_model(source.name, source.model, source.model_config(), tokens)
