"""Rules for `from`: the weights that a run starts from exist on this machine, and are those of the run's model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.config.checks import this_machine
from launcher.config.checks.problems import WARNING, CheckContext, Problem, Rule
from launcher.config.checks.train_context import is_given, train_of
from launcher.config.kinds import RunKind
from launcher.config.maxtext import models
from launcher.config.weights import Source
from launcher.json_object import json_object

DESCRIPTION = "slipway.json"
"""The file next to the folder `items` of imported weights, which describes their model (trainer/weights)."""
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "llama": ("llama2",),
    "mistral": ("mistral",),
    "mixtral": ("mixtral",),
    "gemma2": ("gemma2",),
    "gemma3_text": ("gemma3",),
    "qwen3": ("qwen3",),
    "qwen3_moe": ("qwen3_moe",),
}
"""MaxText's decoders of each family of Hugging Face's models, as in trainer/weights/model.py."""
SIZES: Mapping[str, str] = {
    "vocabulary": "vocab_size",
    "layers": "num_decoder_layers",
    "hiddenSize": "emb_dim",
    "intermediateSize": "mlp_dim",
    "heads": "num_query_heads",
    "keyValueHeads": "num_kv_heads",
    "headDim": "head_dim",
    "experts": "num_experts",
}
"""The dimensions of a model by their names in slipway.json."""

# Keys of base.yml that change the arrays, or which of them there are, and are not sizes.
_STRUCTURE = (
    "decoder_block",
    "scan_layers",
    "attention_type",
    "first_num_dense_layers",
    "trainable_position_size",
    "logits_via_embedding",
)


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys of `train` in which two models differ, each with the value of `theirs` and of `ours`.

    Only keys whose effective value is known from the tables count: MaxText itself compares all weights.
    """
    if not models.row_of(theirs) or not models.row_of(ours):
        return {}
    first, second = models.settings(theirs), models.settings(ours)
    keys = [*models.DIMENSIONS.values(), "global_parameter_scale", *_STRUCTURE]
    differing = {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}
    if differing and models.name_of(theirs) != models.name_of(ours):
        return {"model_name": (models.name_of(theirs), models.name_of(ours)), **differing}
    return differing


def described_differences(record: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the same for imported weights, whose slipway.json has this record."""
    model = record.get("model")
    if not isinstance(model, dict) or not models.row_of(ours):
        return {}
    settings = models.settings(ours)
    try:
        sizes = models.dimensions(ours)
    except ValueError:  # another rule reports the invalid scale
        return {}
    differing: dict[str, tuple[Any, Any]] = {}
    block, family = settings.get("decoder_block"), str(model.get("family"))
    if family in FAMILIES and block not in FAMILIES[family]:
        key = "decoder_block" if models.name_of(ours) == "default" else "model_name"
        differing[key] = (family, models.name_of(ours) if key == "model_name" else block)
    experts = model.get("experts") or 1
    for name, key in SIZES.items():
        if experts > 1 and name == "intermediateSize":  # of the experts, in other keys
            continue
        have, want = experts if name == "experts" else model.get(name), sizes[key]
        if name == "layers" and family == "gemma2" and isinstance(have, int):
            have //= 2  # a layer of MaxText's Gemma 2 is two of Hugging Face's
        if isinstance(have, int) and have != want:
            differing[models.DIMENSIONS[key]] = (have, want)
    scanned, scan = record.get("scanned"), settings.get("scan_layers")
    if isinstance(scanned, bool) and scanned != scan:
        differing["scan_layers"] = (scanned, scan)
    return differing


def tokenizers(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of the tokenizers of two run configs. The folder of a tokenizer can move."""
    paths = (((each.get("data") or {}).get("tokenizer") or {}).get("path") for each in (old, new))
    was, now = (str(path or "tokenizer.llama2").rstrip("/").rpartition("/")[2] for path in paths)
    return was, now


def tokenizer_sentence(source: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return a sentence if the weights' tokenizer has another name, or "". A copy of it can have any name."""
    was, now = tokenizers(old, new)
    text = f"data.tokenizer.path: the weights of from: {source} know only the ids of their tokenizer, {was}"
    return f"{text}, and this run uses {now}; set that one, unless both are the same." if was != now else ""


def sentence(source: str, differing: Mapping[str, tuple[Any, Any]]) -> tuple[str, str]:
    """Return the first key of `train` that differs from the weights' model, and a sentence about it."""
    key, (has, wants) = next(iter(differing.items()))
    more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
    if key in ("model_name", "decoder_block"):
        return key, (
            f"train.{key} is {json.dumps(wants)}, and the weights of from: {source} are those of {has}; set "
            "train.model_name to that of the weights, or start from other weights."
        )
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
        record = {} if "://" in source.path else _object(Path(source.path).expanduser() / DESCRIPTION)
        differing = described_differences(record, train)
    elif source.name == case.tree["run"]["name"]:
        return  # another rule reports it
    else:
        folder = this_machine.runs_folder() / source.name
        theirs = _object(folder / "run.json")
        of_weights = theirs.get("train")
        differing = differences(of_weights, train) if isinstance(of_weights, dict) else {}
        if theirs and (message := tokenizer_sentence(given, theirs, case.tree)):
            yield case.problem("from", ("data", "tokenizer", "path"), message, WARNING)
        if not folder.is_dir() and re.fullmatch(r"[a-z][-a-z0-9]*", source.name):
            message = f"from: there is no run {source.name} on this machine ({folder})."
            if Path(source.name).is_dir():
                message += f" If you mean the folder, write ./{source.name}."
            elif (first := folder.with_name(f"{source.name}-1")).is_dir():
                message += f" The run of a sweep is written with its number, such as {first.name}."
            yield case.problem("from", ("from",), message)
    if differing:
        key, message = sentence(given, differing)
        path = ("train", key) if is_given(case, key) else ("from",)
        yield case.problem("from", path, message)


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
