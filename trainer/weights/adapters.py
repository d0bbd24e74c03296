"""The adapters of a run with LoRA: as a folder that peft reads, and merged into the weights that they change.

In a layer, MaxText computes x·W + alpha/rank · (x·A)·B. A has the shape [inputs, rank] and B [rank, outputs]; peft has
both transposed. The conversion changes the outputs of B as those of W, and leaves A as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.starting_weights import frozen_weights
from trainer.tuning.lora import ATTENTION, MLP
from trainer.tuning.settings import Lora
from trainer.weights import folder, model
from trainer.weights.checkpoint import Checkpoint
from trainer.weights.tensors import Array, Tensor, arrays, to_hugging_face

FILE, CONFIG = "adapter_model.safetensors", "adapter_config.json"
Matrix = np.ndarray[Any, Any]
Tensors = Callable[[Array], Iterator[Iterator[Matrix]]]
_PREFIX = "base_model.model."


@dataclass(frozen=True)
class Adapter:
    """The adapter of a matrix: `of` is the array of the matrices of all layers, `down` is A and `up` is B."""

    of: Array
    down: Array
    up: Array


def adapters(source: model.Model, lora: Lora) -> list[Adapter]:
    """Return the adapters of a model, in the order of its arrays."""
    made = []
    for array in arrays(source):
        if _target(array) not in targets(source, lora):
            continue
        inputs, outputs = array.tensors[0].shape[1], array.part[array.inputs :]
        stacked = () if array.tensors[0].layer is None else (len(array.tensors),)
        down = Array(
            f"{array.name}_lora_a",
            (inputs, *stacked, lora.rank),
            "matrix",
            (inputs, lora.rank),
            1,
            tuple(_tensor(each, "lora_A", (lora.rank, inputs)) for each in array.tensors),
        )
        width = array.tensors[0].shape[0]
        up = Array(
            f"{array.name}_lora_b",
            (lora.rank, *stacked, width),
            array.kind,
            (lora.rank, *outputs),
            1,
            tuple(_tensor(each, "lora_B", (width, lora.rank)) for each in array.tensors),
        )
        made.append(Adapter(array, down, up))
    return made


def targets(source: model.Model, lora: Lora) -> tuple[str, ...]:
    """Return the matrices that have adapters, by their names in Hugging Face format."""
    names = (*ATTENTION, *(() if source.experts else MLP))
    return tuple(name for name in names if name in lora.targets) if lora.targets else names


def check(config: RunConfig) -> None:
    """Raise ConfigError if the model of a run cannot have its adapters."""
    lora = config.tuning.lora
    if lora is None:
        return
    source = model.read(config)
    for name in lora.targets:
        if name not in targets(source, replace(lora, targets=())):
            raise ConfigError(
                f"tuning.lora.targets: {name} is in the experts of {source.family.name}, which have no adapters; use "
                f"{', '.join(ATTENTION)}."
            )
    for adapter in adapters(source, lora):
        if lora.rank > (most := min(adapter.of.tensors[0].shape)):
            raise ConfigError(
                f"tuning.lora.rank is {lora.rank}, but {_target(adapter.of)} is a matrix of rank {most} at most; set a "
                "lower rank."
            )


def _target(array: Array) -> str:
    """Return the name of an array's matrices; "" if it has none, or those of experts."""
    return "" if array.kind == "experts" or not array.tensors else array.tensors[0].name.split(".")[-2]


def _tensor(of: Tensor, part: str, shape: tuple[int, int]) -> Tensor:
    return Tensor(f"{_PREFIX}{of.name.removesuffix('weight')}{part}.weight", shape, of.layer)


def _read(checkpoint: Checkpoint, array: Array, source: model.Model) -> Iterator[Matrix]:
    """Yield the tensors of A or B in the order of `array.tensors`, in float32."""
    for pieces in checkpoint.parts(array):
        (part,) = pieces
        yield to_hugging_face(part.astype(np.float32).reshape(array.part), array, source)


def peft_config(config: RunConfig, source: model.Model, lora: Lora) -> dict[str, Any]:
    """Return adapter_config.json."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model(config),
        "r": lora.rank,
        "lora_alpha": int(lora.alpha) if lora.alpha == int(lora.alpha) else lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(targets(source, lora)),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "modules_to_save": None,
        "use_rslora": False,
        "use_dora": False,
    }


def base_model(config: RunConfig) -> str:
    """Return the model that the adapter belongs to: of imported weights, the repository on Hugging Face or the folder;
    otherwise the value of `from`."""
    given = str(config.tree.get("from") or config.train.get("load_parameters_path") or "")
    try:
        record = json.loads((Path(frozen_weights(config)).parent / folder.RECORD).read_text(encoding="utf-8"))
        return str(record["source"]["from"]).removeprefix("hf:")
    except (OSError, ValueError, KeyError, TypeError):
        return given


def alone(checkpoint: Checkpoint, source: model.Model) -> Tensors:
    """Return a function that reads the tensors of an adapter's array."""
    return lambda array: (iter((tensor,)) for tensor in _read(checkpoint, array, source))


def merged(checkpoint: Checkpoint, base: Checkpoint, source: model.Model, lora: Lora) -> Tensors:
    """Return a function that reads the tensors of an array of the model, in pieces of rows: W + alpha/rank · A·B."""
    by_array, scale = {each.of.name: each for each in adapters(source, lora)}, np.float32(lora.alpha / lora.rank)

    def changed(pieces: Iterator[Matrix], down: Matrix, up: Matrix) -> Iterator[Matrix]:
        first = 0
        for piece in pieces:
            last = first + len(piece)
            yield piece.astype(np.float32) + scale * (up[first:last] @ down)
            first = last

    def tensors(array: Array) -> Iterator[Iterator[Matrix]]:
        whole = ((to_hugging_face(piece, array, source) for piece in part) for part in base.parts(array))
        if (adapter := by_array.get(array.name)) is None:
            yield from whole
            return
        for pieces, *both in zip(
            whole,
            _read(checkpoint, adapter.down, source),
            _read(checkpoint, adapter.up, source),
            strict=True,
        ):
            yield changed(pieces, *both)

    return tensors


def base_checkpoint(config: RunConfig, run: Path) -> Checkpoint:
    """Return the weights that the adapters change. `run` is the run's folder here. Raises ConfigError without them."""
    path = Path(frozen_weights(config, run))
    if not path.is_dir():
        raise ConfigError(
            f"The weights that the adapters of {config.name} change are not here: {path} does not exist; export the "
            "adapter without --merge, or export where the weights are."
        )
    return Checkpoint.of_items(path)
