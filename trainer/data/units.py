"""A unit: a piece of one file. Opens and measures the files of a disk and of the hub."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trainer import hub
from trainer.errors import PASSING

TEXT_SUFFIXES = (".txt", ".md")
SUFFIXES = (*TEXT_SUFFIXES, ".jsonl", ".parquet")
# Units are small enough that a small corpus still splits over hosts and into a held-out part, and
# large enough that a corpus of terabytes is a list of a few million.
MIN_UNIT = 1 << 10
MAX_UNIT = 1 << 20

ROWS = ""
"""The field of a corpus whose documents are whole rows."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of one file: bytes [start, stop) of text, or rows [start, stop) of one Parquet row group."""

    path: str
    start: int
    stop: int
    row_group: int = -1  # -1: bytes


def suffix(path: str) -> str:
    return Path(path).suffix.lower()


def opened(path: str, ahead: int = MAX_UNIT) -> AbstractContextManager[BinaryIO]:
    """Open a file. One of the hub is read by requests that return `ahead` bytes more than a read."""
    return hub.opened(path, ahead) if hub.is_hub(path) else Path(path).open("rb")


def parquet_source(path: str) -> AbstractContextManager[Any]:
    return hub.opened(path) if hub.is_hub(path) else nullcontext(path)


def bytes_of(path: str) -> int:
    return hub.size(path) if hub.is_hub(path) else Path(path).stat().st_size


def raise_passing(error: Exception) -> None:
    """Raise the error again if a restart may help."""
    if isinstance(error, OSError) and error.errno in PASSING:
        raise error
