"""List a run's checkpoints: from its folder on this machine or in a bucket, or else from its log."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launcher.backends import run_config
from launcher.backends.base import Backend, RunStatus, State
from launcher.backends.local.record import CONFIG
from launcher.backends.lookup import find
from launcher.errors import LauncherError
from launcher.json_object import json_object
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.common.storage import BUCKET_FOLDER, is_path, is_url, list_bucket, read_bucket, read_folder
from launcher.trainer_output import METRICS_FILE, metrics_in_log

FOLDER = "checkpoints"
LAST, BEST = "last", "best"

# Orbax writes a step into the folder STEP.orbax-checkpoint-tmp, writes a file there when all is written, and renames
# the folder (orbax.checkpoint.path.atomicity, AtomicRenameTemporaryPath).
_DRAFT = re.compile(r"([0-9]+)\.orbax-checkpoint-tmp.*")
_COMMITTED = "commit_success.txt"
_ABOUT = "_CHECKPOINT_METADATA"
# The files that a restore of the weights reads first.
_NEEDED = ("items/_METADATA", "items/manifest.ocdbt")


class NotListed(LauncherError):
    """The checkpoints may exist, but cannot be listed from here."""


def after(step: int) -> str:
    """Return how many steps a checkpoint contains, "60 steps" for the checkpoint 59: MaxText counts from 0."""
    return f"{step + 1:,} step{'s' if step else ''}"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a run.

    `step` is the number of its folder: its last step, counted from 0, so it contains `step` + 1 steps. `bytes` is its
    size on the storage, and `saved` the time when it was complete, RFC 3339. `whole` is False if it is incomplete, and
    None if that is unknown; `problem` then has the reason. `eval_loss` is the held-out loss after `eval_step` steps:
    of the evaluation right after the checkpoint's last step, or else of the nearest one before. `best` is True for the
    checkpoint with the lowest held-out loss, and `last` for that with the highest step; incomplete ones do not count.
    """

    step: int
    bytes: int | None = None
    saved: str | None = None
    whole: bool | None = None
    problem: str = ""
    eval_loss: float | None = None
    eval_step: int | None = None
    best: bool = False
    last: bool = False

    @property
    def evaluated(self) -> bool:
        """Whether the held-out loss is that of exactly this checkpoint."""
        return self.eval_step == self.step + 1


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, in the order of their steps.

    `folder` is the folder that contains their folders: a path, a URL of a bucket, or pvc://CLAIM/NAME/checkpoints,
    which only pods can read. `notes` are sentences about what could not be read.
    """

    name: str
    folder: str
    checkpoints: tuple[Checkpoint, ...]
    notes: tuple[str, ...] = ()

    def select(self, step: str) -> Checkpoint:
        """Return a whole checkpoint: `step` is a number, "last" or "best". Raises LauncherError if there is none."""
        usable = [each for each in self.checkpoints if each.whole is not False]
        if step in (LAST, BEST):
            checkpoint = next((each for each in usable if (each.last if step == LAST else each.best)), None)
            if checkpoint is None and usable and step == BEST:
                raise LauncherError(
                    f"No checkpoint of {self.name} is the best one: none has a held-out loss.",
                    f"To use the last one: --step last. {self._listed(usable)}",
                )
        else:
            checkpoint = next((each for each in self.checkpoints if str(each.step) == step), None)
            if checkpoint is not None and checkpoint.whole is False:
                raise LauncherError(
                    f"The checkpoint {step} of {self.name} is incomplete: {checkpoint.problem}.", self._listed(usable)
                )
        if checkpoint is None:
            what = f"no checkpoint {step}" if step not in (LAST, BEST) else "no whole checkpoint"
            after = next((each.step for each in usable if str(each.step + 1) == step), None)
            hint = f" {after} is the one after step {step}." if after is not None else ""
            raise LauncherError(f"{self.name} has {what} in {self.folder}.", self._listed(usable) + hint)
        return checkpoint

    def _listed(self, usable: Iterable[Checkpoint]) -> str:
        steps = [str(each.step) for each in usable]
        some = ", ".join(["…", *steps[-9:]] if len(steps) > 10 else steps)
        return f"Its checkpoints are: {some}." if steps else "It has no whole checkpoint."


def read(name: str, target: Target = DEFAULT_TARGET) -> Checkpoints:
    """Return the checkpoints of a run: its name, its folder, or the URL of its folder in a bucket.

    Raises LauncherError if the run does not exist, has no checkpoints, or its storage cannot be read.
    """
    if is_url(name):
        return _of_bucket(name.rstrip("/").rpartition("/")[2], name.rstrip("/"))
    if is_path(name):
        folder = Path(name).expanduser().absolute()
        if not folder.is_dir():
            raise LauncherError(f"There is no folder {folder}.")
        return of_folder(folder.name, folder)
    return of_run(*find(name, target))


def of_run(backend: Backend, status: RunStatus) -> Checkpoints:
    """Return the checkpoints of a run that was found. Raises LauncherError as `read` does."""
    config = backend.config_of(status.name)
    if (config.get("run") or {}).get("command"):
        raise _none(status.name, status.folder, status, config)
    if not status.in_cluster:
        return of_folder(status.name, Path(status.folder), status)
    if BUCKET_FOLDER.fullmatch(status.folder):
        return _of_bucket(status.name, status.folder, status)
    mount = str((config.get("storage") or {}).get("mountPath") or "").rstrip("/")
    return _of_log(backend, status, f"{mount}/{status.name}/{FOLDER}")


# --- a folder ---------------------------------------------------------------------------------------------------


def of_folder(name: str, folder: Path, status: RunStatus | None = None) -> Checkpoints:
    """Return the checkpoints in a run's folder on this machine. Raises LauncherError if there are none."""
    files = read_folder(folder, (METRICS_FILE, CONFIG))
    below = folder / FOLDER
    try:
        sizes = dict(_walk(below))
        times = {step: _saved(_read(below / str(step) / _ABOUT)) for step in _steps_of(sizes)}
    except OSError as error:
        raise LauncherError(f"{error.filename or below} cannot be read: {error.strerror}.") from error
    if not files and not sizes:
        raise LauncherError(
            f"{folder} is not the folder of a run: it has no {METRICS_FILE}, {CONFIG} or {FOLDER}.",
            "The folder of a run is in ~/.slipway/runs, or is BUCKET/NAME for a run of a cluster.",
        )
    listed = _checkpoints(sizes, times, renamed_at_once=True)
    return _with_losses(name, str(below), listed, files, status)


def _walk(folder: Path) -> Iterable[tuple[str, int]]:
    """Yield the path, relative to `folder`, and the size of each file below it. Empty folders count as a file of 0."""

    def refused(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # the trainer removes or renames a checkpoint at the same time
            raise error

    for at, folders, names in os.walk(folder, onerror=refused):
        inside = Path(at).relative_to(folder)
        if not folders and not names and inside.parts:
            yield str(inside / "."), 0
        for file in names:
            try:
                yield str(inside / file), os.lstat(Path(at) / file).st_size
            except OSError as error:
                refused(error)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


# --- a bucket ---------------------------------------------------------------------------------------------------


def _of_bucket(name: str, url: str, status: RunStatus | None = None) -> Checkpoints:
    below = f"{url}/{FOLDER}"
    try:
        files = read_bucket(url, (METRICS_FILE, CONFIG))
        sizes = {path: size for path, size in list_bucket(below).items() if not path.endswith("/")}
    except LauncherError as error:
        raise NotListed(error.message, error.hint) from error
    if not files and not sizes:
        raise LauncherError(
            f"{url} contains no run: the bucket does not exist, or the folder has no {METRICS_FILE}, {CONFIG} or "
            f"{FOLDER}.",
            "The folder of a cluster's run is gs://BUCKET/NAME; `launcher status NAME -o json` prints it.",
        )
    about = {step: path for step in _steps_of(sizes) if (path := f"{step}/{_ABOUT}") in sizes}
    texts = read_bucket(below, list(about.values())) if about else {}
    times = {step: _saved(texts.get(path, b"")) for step, path in about.items()}
    # gcsfuse renames a folder object by object, unless the bucket has a hierarchical namespace.
    listed = _checkpoints(sizes, times, renamed_at_once=False)
    return _with_losses(name, below, listed, files, status)


# --- a log ------------------------------------------------------------------------------------------------------


def _of_log(backend: Backend, status: RunStatus, in_pods: str) -> Checkpoints:
    """Return the checkpoints that the run's log names. Whether they are whole, and still exist, is unknown."""
    below = f"{status.folder}/{FOLDER}"
    where = "is a claim that only pods can mount" if status.folder.startswith("pvc://") else "is a folder of its pods"
    note = (
        f"{below} {where}, so this list is from the run's log: it does not show whether they are whole or still exist."
    )
    lines = []
    if status.state not in (State.QUEUED, State.ADMITTED):
        try:
            lines = list(backend.logs(status.name, follow=False, worker=None))
        except LauncherError as error:
            hint = (
                f"To list the folder, start a pod that mounts the claim, or, while the run has pods: launcher shell "
                f"{status.name}{backend.cli_args} -- ls {in_pods}"
            )
            raise NotListed(
                f'The checkpoints of the run "{status.name}" are not known: {below} {where}, and {error.message}',
                hint,
            ) from error
    listed = [Checkpoint(step) for step in sorted(set(saved_in_log(lines)))]
    if not listed:
        raise _none(status.name, below, status)
    evaluations = _evaluations(metrics_in_log(lines))
    return Checkpoints(status.name, below, tuple(_ranked([_evaluated(each, evaluations) for each in listed])), (note,))


# --- what the files mean ----------------------------------------------------------------------------------------


def _steps_of(sizes: Mapping[str, int]) -> list[int]:
    return sorted({int(top) for path in sizes if (top := path.partition("/")[0]).isdecimal()})


def _checkpoints(
    sizes: Mapping[str, int], times: Mapping[int, str | None], *, renamed_at_once: bool
) -> list[Checkpoint]:
    """Return the checkpoints for the sizes of the files below their folder, by relative path."""
    files: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        top, _, below = path.partition("/")
        files.setdefault(top, {})[below] = size
    drafts = {int(match[1]): top for top in files if (match := _DRAFT.fullmatch(top))}
    by_step = {}
    for top, inside in files.items():
        if top.isdecimal():
            step = int(top)
            problem = _incomplete(inside)
            if not problem and step in drafts and not renamed_at_once:
                problem = f"a part of it is still in {drafts[step]}"
            by_step[step] = Checkpoint(step, sum(inside.values()), times.get(step), not problem, problem)
    for step, top in drafts.items():
        if step not in by_step:
            problem = f"{top} is being written, or its writer was killed"
            by_step[step] = Checkpoint(step, sum(files[top].values()), None, False, problem)
    return [by_step[step] for step in sorted(by_step)]


def _incomplete(inside: Mapping[str, int]) -> str:
    """Return what a step's folder lacks, as a clause; "" if it is whole."""
    missing = [name for name in (_ABOUT, *_NEEDED) if not inside.get(name)]
    # Orbax before 0.12 wrote this file only to a bucket, so it is required if a part of the checkpoint has it.
    committed = {path.rpartition("/")[0] for path in inside if path.rpartition("/")[2] == _COMMITTED}
    missing += [_COMMITTED] if committed and "" not in committed else []
    return f"it has no {missing[0]}" if missing else ""


def _saved(about: bytes) -> str | None:
    """Return the time in Orbax's file about a checkpoint, at which it was complete."""
    at = (json_object(about) or {}).get("commit_timestamp_nsecs")
    if not isinstance(at, int) or not 0 < at < 1 << 62:
        return None
    return datetime.fromtimestamp(at / 1e9, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _with_losses(
    name: str, below: str, listed: list[Checkpoint], files: Mapping[str, bytes], status: RunStatus | None
) -> Checkpoints:
    config = json_object(files.get(CONFIG, b"")) or {}
    if not listed:
        raise _none(name, below, status, {} if run_config.wrong(config) else config)
    lines = [line for line in files.get(METRICS_FILE, b"").split(b"\n") if line.strip()]
    entries = [entry for line in lines if (entry := json_object(line)) is not None]
    notes = []
    if METRICS_FILE not in files:
        notes.append(f"Its folder has no {METRICS_FILE}, so their held-out losses are not known.")
    if bad := len(lines) - len(entries):
        notes.append(
            f"{bad} line{'s' if bad > 1 else ''} of its {METRICS_FILE} cannot be read and "
            f"{'are' if bad > 1 else 'is'} left out."
        )
    evaluations = _evaluations(entries)
    return Checkpoints(name, below, tuple(_ranked([_evaluated(each, evaluations) for each in listed])), tuple(notes))


def _none(name: str, below: str, status: RunStatus | None, config: Mapping[str, Any] | None = None) -> LauncherError:
    if ((config or {}).get("run") or {}).get("command"):
        return LauncherError(
            f'The run "{name}" has no checkpoints: it runs a command (run.command) instead of the trainer.'
        )
    if ((config or {}).get("train") or {}).get("enable_checkpointing") is False:
        return LauncherError(
            f"{name} has no checkpoints: train.enable_checkpointing is false.",
            "To write checkpoints, remove the key and submit the run again.",
        )
    hint = "train.checkpoint_period sets how often a run writes one; a run that ends writes its last step."
    if status is not None and not status.state.ended:
        return LauncherError(f"{name} has no checkpoints yet: it is {status.state}, and {below} is empty.", hint)
    return LauncherError(f"{name} has no checkpoints: {below} is empty.", hint)


def _evaluations(entries: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return the held-out losses by the number of finished steps; of a repeated evaluation, the later one."""
    losses = {}
    for entry in entries:
        step, loss = entry.get("step"), entry.get("eval_loss")
        if type(step) is int and isinstance(loss, int | float) and not isinstance(loss, bool) and math.isfinite(loss):
            losses[step] = float(loss)
    return losses


def _evaluated(checkpoint: Checkpoint, evaluations: Mapping[int, float]) -> Checkpoint:
    # The number of an evaluation counts the finished steps, and that of a checkpoint is its last step.
    step = max((each for each in evaluations if each <= checkpoint.step + 1), default=None)
    return checkpoint if step is None else replace(checkpoint, eval_loss=evaluations[step], eval_step=step)


def _ranked(listed: list[Checkpoint]) -> list[Checkpoint]:
    whole = [each for each in listed if each.whole is not False]
    measured = [each for each in whole if each.eval_loss is not None and each.eval_step is not None]
    # Of checkpoints with the same evaluation, the one closest to it.
    best = min(measured, key=lambda saved: (saved.eval_loss or 0.0, saved.step - (saved.eval_step or 0)), default=None)
    last = whole[-1].step if whole else None
    return [replace(each, best=best is not None and each.step == best.step, last=each.step == last) for each in listed]


def saved_in_log(lines: Iterable[str]) -> Iterator[int]:
    """Yield the steps, counted from 0, after which the trainer began to write a checkpoint (trainer/run_log.py)."""
    for line in lines:
        if saved := _SAVED.search(line):
            yield int(saved[1]) - 1


_SAVED = re.compile(r"\bcheckpoint after step ([1-9][0-9]{0,14})/[0-9]+\b")
