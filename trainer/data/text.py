"""Reads units of text files: the lines and the rows of JSON in a range of bytes."""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

from trainer import hub
from trainer.data.kept import of_hub
from trainer.data.units import MAX_UNIT, Unit, opened, raise_passing, suffix
from trainer.errors import ConfigError

# A text file is cut after a newline if there is one within this many bytes, else between characters.
_NEWLINE_WINDOW = 64 << 10
_SURROGATE = re.compile("[\ud800-\udfff]")
# What is left between the lines of files that were joined or cut: NUL, a byte order mark, the end-of-file of DOS.
_PADDING = "\0\ufeff\x1a"
_JSON_TYPES = {list: "a list", dict: "an object", int: "a number", float: "a number", bool: "true or false"}


def read(unit: Unit) -> tuple[bytes, int]:
    """Return the bytes of a unit of a text file, and their offset."""
    return of_hub.get(unit, lambda: _read_file(unit)) if hub.is_hub(unit.path) else _read_file(unit)


def _read_file(unit: Unit) -> tuple[bytes, int]:
    try:
        with opened(unit.path, unit.stop - unit.start + _NEWLINE_WINDOW) as file:
            raw, start = _read_range(file, unit, lines_only=suffix(unit.path) == ".jsonl")
    except OSError as error:
        raise_passing(error)
        raise ConfigError(f"Cannot read {unit.path}: {error.strerror}.") from error
    bom = len(codecs.BOM_UTF8) if start == 0 and raw.startswith(codecs.BOM_UTF8) else 0
    return raw[bom:], start + bom


def _read_range(file: BinaryIO, unit: Unit, *, lines_only: bool) -> tuple[bytes, int]:
    """Return the bytes of the unit with both ends moved to a boundary, and their start offset.

    Both neighbors of a cut compute the same boundary from the file alone, so nothing is read twice or
    left out. A boundary is the first place at or after the cut that follows a newline. In text without
    a newline nearby, it is the next character.
    """
    start = _boundary(file, unit.start, lines_only=lines_only)
    stop = _boundary(file, unit.stop, lines_only=lines_only)
    file.seek(start)
    return file.read(max(0, stop - start)), start


def _boundary(file: BinaryIO, cut: int, *, lines_only: bool) -> int:
    if cut == 0:
        return 0
    file.seek(cut - 1)
    before = cut - 1
    while chunk := file.read(_NEWLINE_WINDOW):
        newline = chunk.find(b"\n")
        if newline >= 0:
            return before + newline + 1
        if not lines_only:
            # UTF-8 continuation bytes are 0b10xxxxxx; a character has at most three of them.
            tail = chunk[1:5]
            return cut + next((i for i, byte in enumerate(tail) if byte & 0xC0 != 0x80), len(tail))
        before += len(chunk)
    return before if lines_only else cut


def decode(raw: bytes, start: int, path: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        at = start + error.start
        raise ConfigError(
            f"{path} is not UTF-8 text: byte {raw[error.start]:#04x} at offset {at}, in line {line_number(path, at)}; "
            "convert the file."
        ) from error


def lines(unit: Unit) -> Iterator[tuple[str, int]]:
    """Yield the lines that are not empty, with their offsets."""
    raw, at = read(unit)
    for line in raw.splitlines(keepends=True):
        text = decode(line, at, unit.path).strip(_PADDING).strip()
        if text:
            yield text, at
        at += len(line)


def json_object(line: str, at: int, path: str, example: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        if "\0" in line:  # UTF-16 of ASCII is valid UTF-8
            raise ConfigError(
                f"{path}: line {line_number(path, at)} contains NUL bytes; convert the file to UTF-8."
            ) from error
        raise ConfigError(
            f"{path}: line {line_number(path, at)} is not valid JSON ({error.msg}); write each line as {example}."
        ) from error
    except (ValueError, RecursionError) as error:
        deep = isinstance(error, RecursionError)
        what = "lists or objects that are nested too deeply" if deep else "a number of thousands of digits"
        raise ConfigError(f"{path}: line {line_number(path, at)} contains {what}; remove the line.") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{path}: line {line_number(path, at)} is not a JSON object; write each line as {example}.")
    return row


def field_of(line: str, at: int, path: str, field: str) -> str | None:
    """Return the text of a line; None if it is null, as a row of Parquet without text."""
    row = json_object(line, at, path, f'{{"{field}": "..."}}')
    if field not in row:
        have = ", ".join(sorted(row)[:20]) or "none"
        raise ConfigError(
            f'{path}: line {line_number(path, at)} has no field "{field}" (it has {have}); {what_to_set(row)}.'
        )
    text = row[field]
    if text is None:
        return None
    if not isinstance(text, str):
        raise ConfigError(
            f'{path}: line {line_number(path, at)}: the field "{field}" is {_JSON_TYPES[type(text)]}, not text; '
            f"{what_to_set(row)}."
        )
    return str(cleaned(text))


def cleaned(value: Any) -> Any:
    """Return a value of JSON whose texts have no NUL and no half of a surrogate pair.

    JSON can have such a half, as from a text that was cut in the middle of an emoji. No tokenizer accepts it.
    """
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", without_nul(value))
    if isinstance(value, dict):
        return {key: cleaned(item) for key, item in value.items()}
    return [cleaned(item) for item in value] if isinstance(value, list) else value


def what_to_set(columns: Collection[str]) -> str:
    """Return the keys that rows with these columns need: conversations and pairs have no text of their own."""
    if {"chosen", "rejected"} <= {*columns}:
        return "set data.field, or for pairs tuning.method: dpo"
    forms = ({"messages"}, {"prompt", "completion"}, {"instruction", "output"})
    if any(form <= {*columns} for form in forms):
        return "set data.field, or for conversations tuning.method: sft"
    return "set data.field"


def seems_utf16(raw: bytes) -> bool:
    """Return whether the first NULs are all even bytes or all odd ones: the high bytes of ASCII characters."""
    places = [found.start() % 2 for found in itertools.islice(re.finditer(rb"\0", raw), 64)]
    return len(places) >= 16 and len(set(places)) == 1


def without_nul(text: str) -> str:
    """Return the text without NUL characters: a file that lost its content in a crash can be full of them."""
    return text.replace("\0", "")


def line_number(path: str, at: int) -> int:
    with opened(path) as file:
        lines, left = 1, at
        while chunk := file.read(min(left, MAX_UNIT)):
            lines, left = lines + chunk.count(b"\n"), left - len(chunk)
    return lines
