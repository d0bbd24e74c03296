"""Rules for `from`: the weights that a run starts from exist on this machine, and are those of the run's model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.config.checks import this_machine
from launcher.config.checks.problems import CheckContext, Problem, Rule
from launcher.config.checks.train_context import is_given, train_of
from launcher.config.kinds import RunKind
from launcher.config.maxtext import models
from launcher.config.weights import Source
from launcher.json_object import json_object

DESCRIPTION = "slipway.json"
"""The file beside imported weights that describes their model: {"train": {MaxText's keys}, …}."""

# Keys of base.yml that change the arrays, or which of them there are, and are not sizes.
_STRUCTURE = ("decoder_block", "scan_layers", "attention_type", "first_num_dense_layers", "trainable_position_size")


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys of `train` in which two models differ, each with the value of `theirs` and of `ours`.

    Only keys whose effective value is known from the tables count: MaxText itself compares all weights.
    """
    if not models.row_of(theirs) or not models.row_of(ours):
        return {}
    first, second = models.settings(theirs), models.settings(ours)
    keys = [*models.DIMENSIONS.values(), "global_parameter_scale", *_STRUCTURE]
    found = {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}
    if found and models.name_of(theirs) != models.name_of(ours):
        return {"model_name": (models.name_of(theirs), models.name_of(ours)), **found}
    return found


def disagreement(source: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first key of `train` in which this run's model differs from that of the weights, and a sentence."""
    found = differences(theirs, ours)
    if not found:
        return None
    key, (has, wants) = next(iter(found.items()))
    more = f" (and {len(found) - 1} more)" if len(found) > 1 and key != "model_name" else ""
    return key, (
        f"train.{key} is {json.dumps(wants)}, and the weights of from: {source} have {json.dumps(has)}{more}; set "
        f"train.{key}: {json.dumps(has)}, or start from other weights."
    )


def _itself(case: CheckContext) -> Iterator[Problem]:
    source = case.tree["from"]
    if source and source.partition("@")[0] == case.tree["run"]["name"]:
        message = f'from: "{source}" is the run itself; a run that is submitted again resumes from its own checkpoints.'
        yield case.problem("from", ("from",), message)


def _here(case: CheckContext) -> Iterator[Problem]:
    """Check the weights of a local run, which are on this machine."""
    given, train = case.tree["from"], train_of(case)
    if not given or train is None or case.kind is not RunKind.LOCAL:
        return
    source = Source.parse(given)
    if source.path:
        theirs = None if "://" in source.path else _described(Path(source.path).expanduser())
    elif source.name == case.tree["run"]["name"]:
        return  # another rule reports it
    else:
        folder = this_machine.runs_folder() / source.name
        theirs = _object(folder / "run.json").get("train")
        if not folder.is_dir() and re.fullmatch(r"[a-z][-a-z0-9]*", source.name):
            yield case.problem("from", ("from",), f"from: there is no run {source.name} on this machine ({folder}).")
    if isinstance(theirs, dict) and (found := disagreement(given, theirs, train)):
        key, message = found
        path = ("train", key) if is_given(case, key) else ("from",)
        yield case.problem("from", path, message)


def _described(folder: Path) -> Any:
    return _object(folder / DESCRIPTION).get("train")


def _object(file: Path) -> dict[str, Any]:
    try:
        return json_object(file.read_bytes()) or {}
    except OSError:
        return {}


WEIGHTS_RULES: Sequence[tuple[tuple[str, ...], Rule]] = (
    (("from", "run.name"), _itself),
    (("from", "run", "train", "slice", "common", "worker.env", "data"), _here),
)
"""Each rule with the keys that it reads."""
