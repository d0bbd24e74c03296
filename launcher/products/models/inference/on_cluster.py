"""Choose the model of a release of charts/serve: the export of a run, a folder of the storage, or one of Hugging Face.

The release itself is installed as `launcher install serve` installs it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from launcher.backends.base import Backend, RunStatus, State
from launcher.backends.lookup import NoSuchRun, find_run
from launcher.config.values import files as values_files
from launcher.config.values.tree import with_defaults
from launcher.errors import LauncherError, UsageError
from launcher.k8s.target import Target
from launcher.products.common.named_runs import find_best
from launcher.products.common.storage import is_path, is_url, read_bucket
from launcher.products.models.weights import checkpoints, hub
from launcher.products.models.weights.export import CONFIG_JSON, has_adapters
from launcher.products.models.weights.job import job_name

_EXPORT = "export"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Model:
    """A model for charts/serve.

    `release` is the default name of its release, `sets` are assignments that select it in the values, and `warnings`
    are sentences about what is not known.
    """

    release: str
    sets: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Storage:
    """The storage that pods mount at the path `mount`. `place` is its URL, "" if it is not kept."""

    place: str
    mount: str

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> _Storage:
        storage = tree.get("storage") or {}
        kind, mount = storage.get("kind"), str(storage.get("mountPath") or "").rstrip("/")
        if kind == "gcsfuse":
            return cls(f"gs://{storage.get('bucket')}", mount)
        return cls(f"pvc://{storage.get('claim')}" if kind == "pvc" else "", mount)


def select(name: str, step: str | None, files: Sequence[str], sets: Sequence[str], target: Target) -> Model:
    """Return the model called `name`: a run of the cluster, hf:ORG/NAME, or a folder of the storage in the values.

    A folder is a path in the pods, or below the storage, or its URL in the bucket. `step` is the number of a run's
    checkpoint, "best", or "last" (the default).

    Raises LauncherError if the run does not exist, has no such checkpoint, has other storage than the values, or if the
    model is known to be missing.
    """
    user = values_files.load(files, sets)
    tree = with_defaults(user, values_files.chart_defaults("serve")).tree
    storage = _Storage.of(tree)
    if name.startswith(hub.PREFIX) or is_url(name) or is_path(name):
        if step is not None:
            raise UsageError(f"--step selects a checkpoint of a run, but {name} is not a run.")
        if name.startswith(hub.PREFIX):
            return Model(_release(hub.repository(name)), (f"serve.model={name}",))
        folder = _folder(name, storage)
        missing = f"Copy a model in Hugging Face's format there, such as an export: launcher export RUN --to {folder}"
        return Model(_release(folder), (f"serve.model={folder}",), _check(folder, storage, missing))
    team = tree.get("team") or {}
    namespace = target.namespace or team.get("namespace") or team.get("name")
    try:
        backend, status = find_best(name, replace(target, namespace=namespace or None))
    except NoSuchRun:
        _refuse_local(name, storage)
        raise
    if not status.in_cluster:
        _refuse_local(status.name, storage)
    model_of_run = _of_run(backend, status, step, storage)
    train = backend.config_of(status.name).get("train") or {}
    if (model := train.get("model_name")) and user.origin(("train", "model_name")) is None:
        # Its sizes, from which the checks compute whether it fits the slice.
        model_of_run = replace(model_of_run, sets=(*model_of_run.sets, f"train.model_name={model}"))
    return model_of_run


def _refuse_local(name: str, storage: _Storage) -> None:
    """Raise LauncherError if this machine has a run with the name."""
    if find_run(name, Target(local=True)) is not None:
        raise LauncherError(
            f'The run "{name}" is on this machine, and a cluster cannot read its folder.',
            f"Export it into the storage of the values, and serve this folder: launcher export {name} --to "
            f"{storage.place}/exports/{name}",
        )


def _of_run(backend: Backend, status: RunStatus, step: str | None, storage: _Storage) -> Model:
    config = backend.config_of(status.name)
    own = _Storage.of(config)
    if own.place != storage.place or not own.place:
        raise LauncherError(
            f'The run "{status.name}" is in {own.place or "the pods it had"}, and the values mount '
            f"{storage.place or 'no storage'}.",
            "Set storage in the values to that of the run.",
        )
    try:
        chosen = str(checkpoints.of_run(backend, status).select(step or checkpoints.LAST).step)
    except checkpoints.NotListed:
        if step is None or not step.isdecimal():
            raise
        chosen = step
    folder = f"{status.name}/{_EXPORT}/{chosen}"
    merge = " --merge" if has_adapters(config) else ""
    command = f"launcher export {status.name} --step {chosen}{merge}{backend.cli_args}"
    warnings: tuple[str, ...] = ()
    if not _exported_by_job(backend, status.name, f"{own.mount}/{folder}"):
        warnings = _check(folder, storage, f"To export the checkpoint {chosen} of {status.name}: {command}")
    return Model(status.name, (f"serve.model={folder}",), warnings)


def _exported_by_job(backend: Backend, name: str, folder: str) -> bool:
    """Return whether the run that `launcher export` submits has exported to the folder in the pods.

    Raises LauncherError if it has not ended.
    """
    job = job_name(name, _EXPORT)
    status = backend.summary(job)
    words = (backend.config_of(job).get("run") or {}).get("command") or [] if status is not None else []
    if status is None or folder not in words:
        return False
    if not status.state.ended:
        raise LauncherError(
            f'The run "{job}", which exports the model, is {status.state}.',
            f"Wait until it ends: launcher wait {job}{backend.cli_args}",
        )
    return status.state is State.SUCCEEDED


def _check(folder: str, storage: _Storage, hint: str) -> tuple[str, ...]:
    """Return a warning if it is not known whether the folder has a model; raise LauncherError if it has none."""
    inside = posixpath.relpath(folder, storage.mount) if folder.startswith("/") else folder
    where = f"{storage.place}/{inside}"
    if inside.startswith("../") or not storage.place.startswith("gs://"):
        return (f"Whether {folder} contains a model is not known, because only pods can read it. {hint}",)
    try:
        contents = read_bucket(where, (CONFIG_JSON,))
    except LauncherError as error:
        return (f"Whether {where} contains a model is not known: {error.message} {hint}",)
    if CONFIG_JSON not in contents:
        raise LauncherError(f"{where} contains no model: it has no {CONFIG_JSON}.", hint)
    return ()


def _folder(name: str, storage: _Storage) -> str:
    """Return the folder as serve.model names it: relative to the storage, or an absolute path in the pods."""
    if is_url(name):
        if not name.startswith(f"{storage.place}/") or not storage.place.startswith("gs://"):
            raise LauncherError(
                f"{name} is not in the storage of the values, {storage.place or 'which have none'}.",
                "Set storage.kind and storage.bucket to its bucket, or copy the folder.",
            )
        name = name.removeprefix(f"{storage.place}/")
    if name.startswith((".", "~")):
        raise LauncherError(
            f"{name} is a folder of this machine, and a cluster cannot read it.",
            f"Copy it into the storage of the values, {storage.place or 'a bucket or a claim'}, and give its path.",
        )
    return posixpath.normpath(name)


def _release(name: str) -> str:
    """Return the last part of a name as the name of a release: meta-llama/Llama-3.1-8B is llama-3-1-8b."""
    return _NOT_IN_NAMES.sub("-", name.rstrip("/").rpartition("/")[2].lower()).strip("-")
