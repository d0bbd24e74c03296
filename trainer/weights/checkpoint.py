"""Reads the parameters of a checkpoint array by array, without its optimizer, and writes such parameters.

A checkpoint is a folder per step. Its folder `items` is a TensorStore database (OCDBT) with one Zarr array per
parameter, which Orbax writes. Reading it directly needs neither JAX nor the devices of the run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer.config import RunConfig
from trainer.errors import ConfigError, StorageError
from trainer.weights.tensors import Array

GIB = 1 << 30
# One copy and one file at a time, so that TensorStore decodes one chunk at a time. A chunk has up to 2 GB, by MaxText's
# checkpoint_storage_target_data_file_size_bytes.
_CONTEXT = {"data_copy_concurrency": {"limit": 1}, "file_io_concurrency": {"limit": 1}}
# TensorStore frees a chunk that it has written in a thread of its own. On a busy machine, the next one is there before.
_LARGEST_CHUNK = GIB // 8
_KEPT = 8 * GIB
_SLACK = 64 << 20  # for the indexes of shards
_PIECE = 256 << 20


class Checkpoint:
    """A whole checkpoint of a run. Raises ConfigError if there is none, or if it is not whole."""

    def __init__(self, folder: Path, config: RunConfig, step: int | None) -> None:
        self.step = _choose(folder, config, step)
        self.path = folder / str(self.step) / "items"
        self._names = _names(self.path)

    @classmethod
    def of_items(cls, path: Path) -> Checkpoint:
        """Return the checkpoint, or the imported weights, whose folder `items` this is."""
        checkpoint = cls.__new__(cls)
        checkpoint.step, checkpoint.path, checkpoint._names = -1, path, _names(path)
        return checkpoint

    def check(self, expected: Sequence[Array]) -> None:
        """Raise ConfigError unless the parameters are those of the model, by name and shape."""
        wanted = {array.name: array.shape for array in expected if array.elements}
        stored = {name for name in self._names if name.startswith("params.")}
        for name in sorted(wanted.keys() - stored):
            raise ConfigError(f"{self.path} has no parameter {name}; its run had another model than this run config.")
        for name in sorted(stored - wanted.keys()):
            if 0 not in self._open(name).shape:
                raise ConfigError(
                    f"{self.path} has the parameter {name}, which the model of this run config does not have."
                )
        for name, shape in wanted.items():
            if (have := tuple(self._open(name).shape)) != shape:
                raise ConfigError(
                    f"{self.path}: the parameter {name} has the shape {have}, but the run config's model has {shape}."
                )

    def parts(self, array: Array) -> Iterator[Iterator[np.ndarray[Any, Any]]]:
        """Yield the parts of an array, one per tensor, in the order of `array.tensors`, each in pieces.

        A piece is a part of the rows of the tensor in Hugging Face format. TensorStore decodes a chunk as a whole, and
        a chunk often holds all layers: decoded chunks of up to 8 GiB are kept while the array is read. A larger array
        is read in quarters.
        """
        size = array.elements * self._open(array.name).dtype.numpy_dtype.itemsize
        kept = size if size <= _KEPT else 0
        store = self._open(array.name, kept + _SLACK)
        with self._reading(array.name):
            # A chunk that is missing would be read as zeros.
            statistics = store.storage_statistics(query_not_stored=True, query_fully_stored=True).result()
        if not statistics.fully_stored:
            raise ConfigError(f"{self.path} is not whole: data of the parameter {array.name} is missing.")
        layers = sum(tensor.expert == array.tensors[0].expert for tensor in array.tensors)
        at_once = 1 if kept else max(1, layers // 4)
        for expert in dict.fromkeys(tensor.expert for tensor in array.tensors):
            view = store if expert is None else store[expert]
            if array.tensors[0].layer is None:
                yield self._pieces(view, array, size // len(array.tensors))
                continue
            # Without the axis of experts, that of layers is the first.
            axis = 1 if expert is None else 0
            for first in range(0, layers, at_once):
                chosen = (slice(None),) * axis + (slice(first, min(first + at_once, layers)),)
                block = self._read(view[chosen], array)
                for at in range(block.shape[axis]):
                    yield iter((np.ascontiguousarray(block.take(at, axis)),))

    def _pieces(self, view: Any, array: Array, size: int) -> Iterator[np.ndarray[Any, Any]]:
        """Yield a part in pieces if it is large and has one dimension that is the rows of the tensor."""
        axis = array.inputs if array.kind == "matrix" else 0
        if size <= _PIECE or len(array.part) != 2:
            yield self._read(view, array)
            return
        rows = array.part[axis]
        step = max(1, rows * _PIECE // size)
        for first in range(0, rows, step):
            yield self._read(view[(slice(None),) * axis + (slice(first, min(first + step, rows)),)], array)

    def _open(self, name: str, kept: int = 0) -> Any:
        import tensorstore as ts

        context = ts.Context({**_CONTEXT, "cache_pool": {"total_bytes_limit": kept}})
        with self._reading(name):
            return ts.open(_spec(self.path, name), open=True, read=True, context=context).result()

    def _read(self, view: Any, array: Array) -> np.ndarray[Any, Any]:
        with self._reading(array.name):
            block: np.ndarray[Any, Any] = view.read(order="C").result()
        return block

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Convert TensorStore's error. It raises ValueError for data that is missing, short or not valid."""
        try:
            yield
        except ValueError as error:
            text = str(error)
            if ("os_error_code" in text or "OS error" in text) and os.strerror(errno.ENOENT) not in text:
                raise StorageError(f"Cannot read the parameter {name} in {self.path}: {_first(error)}.") from error
            raise ConfigError(
                f"{self.path} is not whole: the parameter {name} cannot be read ({_first(error)})."
            ) from error


def whole_steps(folder: Path) -> list[int]:
    """Return the steps of the whole checkpoints in a folder `checkpoints`, in order."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit() and _is_whole(path))


def _is_whole(step: Path) -> bool:
    """Return whether a folder has the files without which nothing can be read. Orbax writes a checkpoint into a folder
    of another name, and renames it at the end."""
    items = step / "items"
    return (items / "_METADATA").is_file() and (items / "manifest.ocdbt").is_file()


def _choose(folder: Path, config: RunConfig, step: int | None) -> int:
    steps = whole_steps(folder)
    if step is not None and (folder / str(step)).is_dir() and step not in steps:
        raise ConfigError(f"The checkpoint of step {step} in {folder} is not whole; {_offer(steps)}.")
    if not steps:
        raise ConfigError(f"{config.name} has no whole checkpoint in {folder}; train it first, or set --checkpoint.")
    if step is None:
        return steps[-1]
    if step not in steps:
        raise ConfigError(f"{config.name} has no checkpoint of step {step} in {folder}; {_offer(steps)}.")
    return step


def _offer(steps: list[int]) -> str:
    if not steps:
        return "no other checkpoint is whole"
    shown = ", ".join(map(str, steps if len(steps) <= 8 else [*steps[:3], "...", *steps[-4:]]))
    return f"choose one of the steps {shown}" if len(steps) > 1 else f"choose step {shown}"


def _names(items: Path) -> list[str]:
    try:
        metadata = json.loads((items / "_METADATA").read_text(encoding="utf-8"))
        tree = metadata["tree_metadata"]
        if not (metadata.get("use_zarr3") and metadata.get("use_ocdbt", True)):
            raise ConfigError(
                f"{items} is not in the format of OCDBT and Zarr 3; leave train.checkpoint_storage_use_ocdbt and "
                "train.checkpoint_storage_use_zarr3 true, and resume the run for a checkpoint."
            )
        return [".".join(part["key"] for part in each["key_metadata"]) for each in tree.values()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{items} is not whole: _METADATA cannot be read ({_first(error)}).") from error


def _spec(items: Path, name: str) -> dict[str, Any]:
    base = {"driver": "file", "path": f"{items.resolve()}/"}
    return {"driver": "zarr3", "kvstore": {"driver": "ocdbt", "base": base, "path": f"{name}/"}}


def _first(error: BaseException) -> str:
    """Return the first part of a message of TensorStore, without its list of specs."""
    text = re.split(r" \[(?:tensorstore_spec|source locations|domain)", " ".join(str(error).split()))[0]
    return text.rstrip(".")[:300]


class Writer:
    """Writes parameters in the format of a checkpoint, array by array, in parts."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self.folder = folder
        self.items = folder / "items"
        self.items.mkdir(parents=True)
        self._dtype = dtype
        self._tree: dict[str, Any] = {}
        self._started = time.time_ns()

    def write(self, array: Array, parts: Iterator[np.ndarray[Any, Any]]) -> None:
        """Write one array. `parts` are in the order of `array.tensors`."""
        import tensorstore as ts

        rows = array.part[0]
        while rows * math.prod(array.part[1:]) * 4 > _LARGEST_CHUNK and rows % 2 == 0:
            rows //= 2
        chunk = [rows, *array.part[1:]]
        if array.tensors[0].layer is not None:
            chunk.insert(0 if array.tensors[0].expert is not None else 1, 1)
        if array.tensors[0].expert is not None:
            chunk.insert(0, 1)
        metadata = {
            "shape": list(array.shape),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "data_type": self._dtype,
            "codecs": [
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "zstd", "configuration": {"level": 1}},
            ],
        }
        store: Any = ts.open(
            {**_spec(self.items, array.name), "metadata": metadata, "store_data_equal_to_fill_value": True},
            create=True,
            context=ts.Context(_CONTEXT),
        ).result()
        for tensor, part in zip(array.tensors, parts, strict=True):
            view = store if tensor.expert is None else store[tensor.expert]
            if tensor.layer is not None:
                view = view[:, tensor.layer] if tensor.expert is None else view[tensor.layer]
            for start in range(0, len(part), rows):  # TensorStore copies what it writes: one chunk at a time
                piece = part[start : start + rows].astype(store.dtype.numpy_dtype, copy=False)
                view[start : start + rows].write(piece).result()
        keys = array.name.split(".")
        self._tree[str(tuple(keys))] = {
            "key_metadata": [{"key": key, "key_type": 2} for key in keys],
            "value_metadata": {"value_type": "jax.Array", "skip_deserialize": False, "write_shape": list(array.shape)},
        }

    def finish(self, custom: Mapping[str, Any]) -> None:
        """Write the files that make the folder a checkpoint for Orbax."""
        metadata = {
            "tree_metadata": self._tree,
            "use_ocdbt": True,
            "use_zarr3": True,
            "store_array_data_equal_to_fill_value": True,
            "custom_metadata": None,
        }
        (self.items / "_METADATA").write_text(json.dumps(metadata), encoding="utf-8")
        handler = "orbax.checkpoint.experimental.v1._src.handlers.pytree_handler.PyTreeHandler"
        about = {
            "item_handlers": {"items": handler},
            "metrics": {},
            "performance_metrics": {},
            "init_timestamp_nsecs": self._started,
            "commit_timestamp_nsecs": time.time_ns(),
            "custom_metadata": dict(custom),
        }
        (self.folder / "_CHECKPOINT_METADATA").write_text(json.dumps(about), encoding="utf-8")
        (self.folder / "orbax.checkpoint").touch()
        (self.folder / "commit_success.txt").write_text(f"Checkpoint commit was successful to {os.fspath(self.folder)}")
