"""Writes and reads model*.safetensors one tensor at a time. The library of this name needs a whole file in memory.

A file is the length of its header (8 bytes, little endian), the header (JSON: name, type, shape and place of each
tensor), and the data.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from trainer.errors import ConfigError
from trainer.weights.tensors import Tensor

INDEX = "model.safetensors.index.json"
_TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
}
NAMES = {"float32": "F32", "bfloat16": "BF16"}
"""The names of the types that an export can have, and their names in a header."""

_LARGEST_FILE = 5 * 10**9
_AT_ONCE = 64 << 20


@dataclass(frozen=True)
class Shard:
    name: str
    tensors: tuple[Tensor, ...]


def shards(tensors: Sequence[Tensor], dtype: str, largest: int = _LARGEST_FILE) -> list[Shard]:
    """Distribute tensors over files of at most 5 GB (the largest tensor's size, if that is larger), in order."""
    groups: list[list[Tensor]] = [[]]
    size = 0
    for tensor in tensors:
        nbytes = math.prod(tensor.shape) * _TYPES[NAMES[dtype]].itemsize
        if groups[-1] and size + nbytes > largest:
            groups.append([])
            size = 0
        groups[-1].append(tensor)
        size += nbytes
    if len(groups) == 1:
        return [Shard("model.safetensors", tuple(groups[0]))]
    return [
        Shard(f"model-{number:05}-of-{len(groups):05}.safetensors", tuple(group))
        for number, group in enumerate(groups, 1)
    ]


class ShardWriter:
    """Writes the tensors of one file in the order of the shard."""

    def __init__(self, folder: Path, shard: Shard, dtype: str) -> None:
        self._type = _TYPES[NAMES[dtype]]
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        at = 0
        for tensor in shard.tensors:
            end = at + math.prod(tensor.shape) * self._type.itemsize
            header[tensor.name] = {"dtype": NAMES[dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
            at = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.size = 8 + len(text) + at
        self._file: BinaryIO = (folder / shard.name).open("wb")
        self._file.write(len(text).to_bytes(8, "little") + text)

    def write(self, tensor: np.ndarray[Any, Any]) -> None:
        """Append a tensor, or rows of it. It may be a view: it is converted in blocks of rows."""
        rows = max(1, _AT_ONCE * len(tensor) // max(1, tensor.size * self._type.itemsize)) if tensor.size else 1
        for first in range(0, len(tensor), rows):
            block = np.ascontiguousarray(tensor[first : first + rows].astype(self._type, copy=False))
            self._file.write(block.view(np.uint8).data if block.ndim else block.tobytes())

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Close the file; write it to the disk first, unless there was an error."""
        if kind is None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        else:
            with contextlib.suppress(OSError):  # closing writes what is buffered, and the disk may be full
                self._file.close()


def index(groups: Sequence[Shard], size: int) -> dict[str, Any]:
    """Return the content of the index file: the file of each tensor."""
    return {
        "metadata": {"total_size": size},
        "weight_map": {tensor.name: shard.name for shard in groups for tensor in shard.tensors},
    }


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: its place, type and shape."""

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    def read(self) -> np.ndarray[Any, Any]:
        values = np.fromfile(self.path, self.dtype, math.prod(self.shape), offset=self.offset)
        return values.reshape(self.shape)


def read_folder(folder: Path) -> dict[str, Stored]:
    """Return the tensors of a folder by name. Raises ConfigError if a file is missing, short, or not in this format."""
    if (folder / INDEX).is_file():
        try:
            files = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
            files = [Path(name).name for name in files]  # next to the index
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ConfigError(f"{folder / INDEX} is not a valid index of safetensors files.") from error
    else:
        files = ["model.safetensors"]
    stored: dict[str, Stored] = {}
    for name in files:
        stored |= _read_header(folder / name)
    return stored


def _read_header(path: Path) -> dict[str, Stored]:
    if not path.is_file():
        others = sorted(entry.name for entry in path.parent.glob("*.bin")) if path.parent.is_dir() else []
        hint = "; convert the model to safetensors first" if others else "; download or export the folder again"
        raise ConfigError(f"{path.parent} has no file {path.name}{hint}.")
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, 100 << 20)))
        header.pop("__metadata__", None)
        size = path.stat().st_size
        stored = {}
        for name, entry in header.items():
            start, end = entry["data_offsets"]
            if 8 + length + end > size:
                raise ConfigError(f"{path} is not whole: it ends in the tensor {name}; download or export it again.")
            if entry["dtype"] not in _TYPES:
                raise ConfigError(f"{path}: {name} has the type {entry['dtype']}; import reads F32, BF16 and F16.")
            stored[name] = Stored(path, _TYPES[entry["dtype"]], tuple(entry["shape"]), 8 + length + start)
            _check_size(stored[name], start, end)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not a safetensors file; download or export it again.") from error
    return stored


def _check_size(tensor: Stored, start: int, end: int) -> None:
    """Raise ValueError if the tensor does not have the bytes between two places, or the numbers are not whole."""
    whole = all(type(each) is int and each >= 0 for each in (start, end, *tensor.shape))
    if not whole or math.prod(tensor.shape) * tensor.dtype.itemsize != end - start:
        raise ValueError(f"{tensor.shape} in {start} to {end}")
