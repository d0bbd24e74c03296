"""Writes a model in Hugging Face format as weights that a run can start from (train.load_parameters_path)."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainer.config import RunConfig
from trainer.errors import ConfigError, DownloadError
from trainer.weights import folder, hf_config, model, train_keys
from trainer.weights.checkpoint import Writer
from trainer.weights.exporting import progress
from trainer.weights.safetensors_files import Stored, read_folder
from trainer.weights.tensors import Array, Tensor, arrays, to_maxtext

# The prefixes of the text model's tensors, alone and in a model with vision.
_PREFIXES = ("", "language_model.", "model.language_model.")
_SMALL_FILES = 16 << 20


def import_(config: RunConfig, *, source: str, destination: Path) -> dict[str, Any]:
    """Write the folder `destination` with `items` and slipway.json, and return a summary.

    If the run's config selects no model, config.json does: the summary's `train` has MaxText's keys of it.
    Raises ConfigError if the model and the run's config do not agree, and for everything else that the user must
    change. At any other end there is no folder.
    """
    started = time.monotonic()
    origin = _download(source, destination) if source.startswith("hf:") else Path(source)
    if not origin.is_dir():
        raise ConfigError(
            f"{source} is not a folder; give a folder in Hugging Face format, or hf:ORG/NAME for a model of the Hub."
        )
    theirs = hf_config.read(origin)
    derived: dict[str, Any] = {}
    if not train_keys.selects_a_model(config.train):
        derived = train_keys.derive(theirs, config.train, source)
        progress(f"The values select no model, so config.json does: {train_keys.text(derived)}")
    target = model.of({**config.train, **derived})
    train_keys.compare(theirs, target, config.train, source)
    target = _with_its_scalar(target, theirs)
    stored = read_folder(origin)
    expected = [array for array in arrays(target) if array.elements]
    tensors = [tensor for array in expected for tensor in array.tensors]
    places = {tensor.name: _find(stored, tensor, target, source) for tensor in tensors}
    _check_rest(stored, places, target, source)
    dtype = str(target.keys["weight_dtype"])
    if dtype not in ("float32", "bfloat16"):
        raise ConfigError(f"train.weight_dtype is {dtype}; import writes float32 or bfloat16.")
    parameters = sum(array.elements for array in expected)
    size = parameters * (4 if dtype == "float32" else 2)
    record = {
        "kind": "import",
        "source": {"from": source, "sha256": _digest(origin, stored)},
        "dtype": dtype,
        "parameters": parameters,
        "family": target.family.name,
        "vocabulary": target.sizes["vocab"],
        "scanned": target.scanned,
        "model": target.describe(),
    }
    items = str(destination / "items")
    summary = {**record, "state": "imported", "to": str(destination), "items": items, "bytes": size, "train": derived}
    if folder.existing(destination, record) is not None:
        return {**summary, "state": "present", "seconds": 0.0}
    with folder.complete(destination, size + _SMALL_FILES) as draft:
        writer = Writer(draft, dtype)
        done = 0
        for number, array in enumerate(expected, 1):
            writer.write(array, _parts(array, places, target))
            done += array.elements
            progress(f"{done / parameters:.0%}: {number} of {len(expected)} arrays")
        writer.finish({"scan_layers": target.scanned})
        folder.write_record(draft, {**record, "train": {**config.train, **derived}})
    return {**summary, "seconds": round(time.monotonic() - started, 3)}


def _download(source: str, destination: Path) -> Path:
    """Download a model from Hugging Face, next to the destination. A repeated call downloads only what is missing."""
    import httpx
    from huggingface_hub import errors, snapshot_download

    name = source.removeprefix("hf:")
    try:
        return Path(
            snapshot_download(
                name,
                allow_patterns=["*.json", "*.safetensors"],
                cache_dir=destination.parent / ".huggingface",
                token=os.environ.get("HF_TOKEN") or None,
            )
        )
    except (errors.GatedRepoError, errors.RepositoryNotFoundError) as error:
        raise ConfigError(
            f"{source} does not exist or is private; check the name, or set HF_TOKEN to a token that may read it."
        ) from error
    except errors.HFValidationError as error:
        raise ConfigError(f"{source} is not a valid name; use hf:ORG/NAME.") from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, httpx.HTTPError) as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0].rstrip(".")
        raise DownloadError(
            f"{source} cannot be downloaded ({reason}); start again, which downloads only what is missing."
        ) from error


def _with_its_scalar(target: model.Model, theirs: Mapping[str, Any]) -> model.Model:
    """Check the scaling of the queries. MaxText folds it into Gemma 2's kernels, so any number is possible there."""
    scalar = theirs.get("query_pre_attn_scalar")
    if target.family.name == "gemma2" and scalar and scalar != target.query_pre_attn_scalar:
        return model.Model(target.family, {**target.keys, "query_pre_attn_scalar": scalar})
    return target


def _find(stored: Mapping[str, Stored], tensor: Tensor, target: model.Model, source: str) -> Stored:
    for prefix in _PREFIXES:
        # In newer files of models with vision, the prefix replaces "model.".
        name = prefix + (tensor.name.removeprefix("model.") if prefix.startswith("model.") else tensor.name)
        if name in stored:
            break
    else:
        raise ConfigError(f"{source} has no tensor {tensor.name}, which the family {target.family.name} needs.")
    entry = stored[name]
    fits = entry.shape == tensor.shape
    if not fits and tensor.name in ("model.embed_tokens.weight", "lm_head.weight"):
        # The model has room for more pieces than the file has (MaxText's Gemma 2 has 128 more): the rest is zero.
        fits = len(entry.shape) == 2 and entry.shape[1] == tensor.shape[1] and entry.shape[0] < tensor.shape[0]
    if not fits:
        raise ConfigError(
            f"{source}: the tensor {tensor.name} has the shape {entry.shape}, but the run's model has {tensor.shape}."
        )
    return entry


def _check_rest(stored: Mapping[str, Stored], places: Mapping[str, Stored], target: model.Model, source: str) -> None:
    """Raise ConfigError if the text model in the files has tensors that the run's model lacks, for example biases."""
    used = {(tensor.path, tensor.offset) for tensor in places.values()}
    for name, tensor in stored.items():
        is_text = "model.layers." in name or "language_model." in name
        ignored = name.endswith(("rotary_emb.inv_freq", "lm_head.weight"))
        if is_text and not ignored and (tensor.path, tensor.offset) not in used:
            raise ConfigError(
                f"{source} has the tensor {name}, which MaxText's model of the family {target.family.name} lacks."
            )


def _parts(array: Array, places: Mapping[str, Stored], target: model.Model) -> Iterator[np.ndarray[Any, Any]]:
    for tensor in array.tensors:
        values = places[tensor.name].read()
        if values.dtype != np.float32:
            values = values.astype(np.float32)
        if values.shape != tensor.shape:
            padded = np.zeros(tensor.shape, np.float32)
            padded[: values.shape[0]] = values
            values = padded
        yield to_maxtext(values, array, target)


def _digest(origin: Path, stored: Mapping[str, Stored]) -> str:
    """Return a digest of config.json and the weights."""
    digest = hashlib.sha256()
    for path in [origin / "config.json", *sorted({each.path for each in stored.values()})]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
