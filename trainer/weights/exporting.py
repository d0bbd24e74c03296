"""Writes the parameters of a checkpoint as a folder in Hugging Face format, tensor by tensor."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.maxtext_keys import tokenizer_keys
from trainer.tuning import template
from trainer.weights import adapters, card, folder, hf_config, model, safetensors_files, tokenizer
from trainer.weights.checkpoint import Checkpoint
from trainer.weights.tensors import Array, arrays, to_hugging_face

_Tensors = Callable[[Array], Iterator[Iterator[np.ndarray[Any, Any]]]]
_SMALL_FILES = 64 << 20
"""Bytes that the files other than the weights need at most: tokenizer.json of Gemma 3 has 33 MB."""


def export(
    config: RunConfig,
    *,
    checkpoints: Path | None,
    step: int | None,
    destination: Path,
    dtype: str,
    facts: Mapping[str, Any],
    merge: bool = False,
) -> dict[str, Any]:
    """Write the folder, and return a summary. An export of the same run, step and type that is whole is left as it is.

    The export of a run with adapters is a folder for peft, or with `merge` a whole model. Raises ConfigError for what
    the user must change. At any other end there is no folder.
    """
    started = time.monotonic()
    source = model.read(config)
    saved = checkpoints or config.folder / "checkpoints"
    checkpoint = Checkpoint(saved, config, step)
    lora = config.tuning.lora
    pairs = adapters.adapters(source, lora) if lora is not None else []
    own = [array for pair in pairs for array in (pair.down, pair.up)]
    expected = [array for array in arrays(source) if array.elements]
    checkpoint.check(own or expected)
    read = _whole(checkpoint, source)
    if lora is not None and merge:
        base = adapters.base_checkpoint(config, saved.parent)
        base.check(expected)
        read = adapters.merged(checkpoint, base, source, lora)
    elif lora is not None:
        read = adapters.alone(checkpoint, source)
        expected, dtype = own, "float32"
    tensors = [tensor for array in expected for tensor in array.tensors]
    parameters = sum(math.prod(tensor.shape) for tensor in tensors)
    size = parameters * (4 if dtype == "float32" else 2)
    record = {
        "kind": "adapter" if lora is not None and not merge else "export",
        "run": config.name,
        "step": checkpoint.step,
        "config": config.digest,
        "dtype": dtype,
        "parameters": parameters,
        "family": source.family.name,
        "vocabulary": source.sizes["vocab"],
        "model": source.describe(),
    }
    groups = safetensors_files.shards(tensors, dtype)
    if record["kind"] == "adapter":
        groups = [safetensors_files.Shard(adapters.FILE, tuple(tensors))]
    summary = {**record, "state": "exported", "to": str(destination), "bytes": size, "shards": len(groups)}
    if folder.existing(destination, record) is not None:
        return {**summary, "state": "present", "seconds": 0.0}
    with folder.complete(destination, size + _SMALL_FILES) as draft:
        tokens = write_tokenizer(config, source, draft)
        _write_weights(read, expected, groups, draft, dtype)
        if len(groups) > 1:
            _write_json(draft / safetensors_files.INDEX, safetensors_files.index(groups, size))
        base_model = ""
        if lora is not None and not merge:
            peft = adapters.peft_config(config, source, lora)
            base_model = str(peft["base_model_name_or_path"])
            _write_json(draft / adapters.CONFIG, peft)
        else:
            _write_model_files(source, dtype, tokens, draft)
        readme = card.text(
            config, source, step=checkpoint.step, dtype=dtype, parameters=parameters, facts=facts, adapter_of=base_model
        )
        (draft / "README.md").write_text(readme, encoding="utf-8")
        folder.write_record(draft, record)
    return {**summary, "seconds": round(time.monotonic() - started, 3)}


def _whole(checkpoint: Checkpoint, source: model.Model) -> _Tensors:
    """Return a function that reads the tensors of an array, each in pieces of rows."""
    return lambda array: ((to_hugging_face(piece, array, source) for piece in part) for part in checkpoint.parts(array))


def _write_model_files(source: model.Model, dtype: str, tokens: tokenizer.Tokens, draft: Path) -> None:
    _write_json(draft / "config.json", hf_config.build(source, dtype, tokens))
    _write_json(
        draft / "generation_config.json",
        {
            "bos_token_id": tokens.bos,
            "eos_token_id": tokens.eos,
            "pad_token_id": tokens.pad,
            "max_length": int(source.keys["max_target_length"]),
        },
    )


def write_tokenizer(config: RunConfig, source: model.Model, draft: Path) -> tokenizer.Tokens:
    """Write the run's tokenizer, with its chat template. Raises ConfigError if there is none, or not the run's."""
    keys = tokenizer_keys(config.data.get("tokenizer") or {})
    path, rows = keys["tokenizer_path"], source.sizes["vocab"]
    bos, eos = bool(source.keys["add_bos"]), bool(source.keys["add_eos"])
    tokens = tokenizer.write(path, keys["tokenizer_type"], draft, add_bos=bos, add_eos=eos)
    if tokens.size > rows:
        raise ConfigError(
            f"data.tokenizer.path: {path} has {tokens.size:,} pieces, but the model has {rows:,} rows; "
            "set the tokenizer that the run was trained with."
        )
    if config.tuning.template:
        (draft / "chat_template.jinja").write_text(template.named(config.tuning.template), encoding="utf-8")
    return tokens


def _write_weights(
    read: _Tensors, expected: list[Array], groups: list[safetensors_files.Shard], draft: Path, dtype: str
) -> None:
    """Write the tensors. Those of adapters are in the order of their arrays."""
    parts = (part for array in expected for part in read(array))
    for number, shard in enumerate(groups, 1):
        writer = safetensors_files.ShardWriter(draft, shard, dtype)
        with writer:
            for _ in shard.tensors:
                for piece in next(parts):
                    writer.write(piece)
        progress(f"{shard.name}: {len(shard.tensors)} tensors, {writer.size / 1e6:,.1f} MB ({number} of {len(groups)})")


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - progress for the user


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
