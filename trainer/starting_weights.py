"""The checkpoints of a run, and the weights that it starts from."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.config import RunConfig, replace_file
from trainer.errors import ConfigError
from trainer.metrics import read as read_metrics
from trainer.tuning.settings import Tuning

BASE_FILE = "base.json"
"""The weights that a run reads at each start (Tuning.keeps_base): their path, and a digest of them."""

WEIGHT_PATHS = ("load_parameters_path", "load_full_state_path")
"""MaxText's keys for the checkpoint of another run to start from."""

_LAST, _BEST = "last", "best"
"""The step in the path of weights that follow from `from: RUN` and `RUN@best` (launcher/config/weights.py)."""


def saved_steps(config: RunConfig) -> int:
    """Return the number of steps that the last whole checkpoint contains; 0 if there is none."""
    if config.train.get("enable_checkpointing") is False:
        return 0
    return max((step + 1 for step in _steps(config.folder / "checkpoints")), default=0)


def check_weights(config: RunConfig) -> None:
    """Raise ConfigError if the weights to start from are missing. Most runs with a checkpoint no longer read them."""
    frozen = config.tuning.keeps_base
    if saved_steps(config) and not frozen:
        return
    for key in WEIGHT_PATHS:
        path = config.train.get(key)
        if frozen and path and key == "load_parameters_path":
            path = weights_of(config, str(path))
        if not isinstance(path, str) or not path or "://" in path:
            continue
        _refuse_adapters(key, Path(path), config.tree.get("from"))
        if not Path(path).exists():
            if config.tree.get("from"):
                if Path(path).parent.name in (_LAST, _BEST):  # weights_of has found the step
                    continue
                if (Path(path).parent / "config.json").is_file():
                    raise ConfigError(
                        f"from: {config.tree['from']} is a model in Hugging Face format; convert it with launcher "
                        f"import {config.tree['from']} --to WEIGHTS, and set from to that folder."
                    )
                raise ConfigError(f"from: {config.tree['from']}: {path} does not exist. {_what_exists(Path(path))}")
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


def weights_of(config: RunConfig, path: str) -> str:
    """Return the path of the weights to start from, with the step of a run that `from` names without one, or @best.

    All hosts must read the same step, so the run must have reached its last step. Raises ConfigError.
    """
    items, frozen = Path(path), config.tuning.keeps_base
    if frozen and (kept := base_of(config, config.folder)):
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
    path = weights_of(config, str(config.train.get("load_parameters_path") or ""))
    files = [Path(path) / name for name in ("_METADATA", "manifest.ocdbt")]
    digest = hashlib.sha256()
    if "://" not in path:
        for file in files:
            digest.update(file.read_bytes() if file.is_file() else b"")
    kept = base_of(config, config.folder)
    if kept and kept["digest"] != digest.hexdigest() and saved_steps(config):
        raise ConfigError(
            f"The weights in {path} have changed since {config.name} started from them, and each start reads them; "
            "restore them, or submit under a new name."
        )
    record = {"given": _given(config), "weights": path, "digest": digest.hexdigest()}
    if kept != record:
        replace_file(config.folder / BASE_FILE, record)


def base_of(config: RunConfig, run: Path) -> dict[str, Any]:
    """Return the content of BASE_FILE; {} if there is none, or for other weights."""
    kept = _object(run / BASE_FILE)
    return kept if kept.get("given") == _given(config) else {}


def _given(config: RunConfig) -> list[str]:
    return [str(config.tree.get("from") or ""), str(config.train.get("load_parameters_path") or "")]


def frozen_weights(config: RunConfig, run: Path | None = None) -> str:
    """Return the path of the weights that the run's adapters change. `run` is the run's folder, if it was moved."""
    path = str(config.train.get("load_parameters_path") or "")
    kept = base_of(config, run or config.folder)
    return str(kept["weights"]) if kept else weights_of(config, path)


def _steps(folder: Path) -> list[int]:
    """Return the numbers of the whole checkpoints in a folder, in order."""
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []


def _what_exists(items: Path) -> str:
    if steps := _steps(items.parents[1]):
        after = [f" {step} is the one after step {step + 1}." for step in steps if str(step + 1) == items.parent.name]
        return f"Its checkpoints are: {', '.join(map(str, steps[-10:]))}.{''.join(after)}"
    return "Set from to a run, or to a folder that launcher import wrote."
