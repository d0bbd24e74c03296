"""The documents of a unit, and its rows with their places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainer.data import parquet, text
from trainer.data.units import ROWS, Unit, suffix
from trainer.errors import ConfigError


def documents(unit: Unit, field: str) -> Iterator[str]:
    """Yield the documents of one unit, in order; with ROWS, each row as JSON.

    Raises ConfigError with file and place for text that is not UTF-8, a line that is not a JSON object,
    a missing column or field, and a file that changed during the run. Raises OSError if a restart may help.
    """
    if field == ROWS:
        for row, _ in rows(unit):
            yield json.dumps(row, default=str)
    elif unit.row_group >= 0:
        yield from parquet.texts(unit, field)
    elif suffix(unit.path) == ".jsonl":
        for line, at in text.lines(unit):
            if (document := text.field_of(line, at, unit.path, field)) is not None:
                yield document
    else:
        raw, start = text.read(unit)
        if text.seems_utf16(raw):
            raise ConfigError(f"{unit.path} seems to be UTF-16; convert the file to UTF-8.")
        content = text.without_nul(text.decode(raw, start, unit.path))
        if content.strip():
            yield content


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a row: the offset of a line, or a row of a Parquet row group. Its text is "FILE: line 3"."""

    path: str
    at: int
    row_group: int = -1

    def __str__(self) -> str:
        if self.row_group >= 0:
            return f"{self.path}: row {self.at} of row group {self.row_group}"
        return f"{self.path}: line {text.line_number(self.path, self.at)}"


def rows(unit: Unit) -> Iterator[tuple[dict[str, Any], Place]]:
    """Yield the rows of one unit of a .jsonl or .parquet file, with all their fields, in order.

    Raises ConfigError and OSError as `documents` does, and ConfigError for a file of text.
    """
    if unit.row_group >= 0:
        for number, row in enumerate(parquet.objects(unit), unit.start):
            yield row, Place(unit.path, number, unit.row_group)
    elif suffix(unit.path) == ".jsonl":
        for line, at in text.lines(unit):
            yield text.cleaned(text.json_object(line, at, unit.path, '{"messages": [...]}')), Place(unit.path, at)
    else:
        raise ConfigError(f"{unit.path} is text without fields; write a .jsonl or .parquet file.")
