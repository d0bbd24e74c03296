"""Format tables, numbers and times for display."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

_GAP = "  "
_FEW_LINES, _MOST_LINES = 4, 12  # of a cell that is wrapped: in any column, and in one that is not narrow
_NARROW = 24
_WORDS = re.compile(r"[0-9.,]+ (?:d|h|min|s|[kMGT]B|x)\b\S*|\S+")
_LABEL = 14  # the columns of a short label, such as "checkpoints", and the gap after it
_INDENT = 6  # of a cell that is below the rest of its row


def table(
    rows: Iterable[Sequence[str]],
    *,
    headed: bool = True,
    grouped: bool = False,
    fit: bool = True,
    indent: int = 0,
) -> str:
    """Format rows as aligned columns; the last column is not padded.

    A cell is one line, so that its text cannot look like another row. Without a terminal, or if it is wide enough, each
    row is one line. On a narrower terminal, cells are wrapped between words. If they would have too many lines, a table
    whose first row has titles (`headed`) becomes a block of lines "TITLE: cell" for each row, without the empty cells.
    In a table without titles, only the last cell of a row is wrapped, or goes below the rest of the row.

    `grouped`: the first column has the name of a group in the first row of the group. On a narrow terminal, the name
    becomes a heading. `indent` is the number of columns that the caller uses at the left. Without `fit`, the width of
    the terminal is ignored.
    """
    cells = [[" ".join(cell.splitlines()) for cell in row] for row in rows]
    columns = terminal_columns() if fit else None
    if columns is None or _total(_widths(cells)) <= columns - indent:
        return "\n".join(_lines(cells, _widths(cells)))
    return _groups(cells, columns - indent) if grouped else _fitted(cells, columns - indent, headed=headed)


def terminal_columns() -> int | None:
    """Return the number of columns of the terminal on stdout; None if it is not a terminal, or has no size."""
    return (shutil.get_terminal_size(fallback=(0, 0)).columns or None) if sys.stdout.isatty() else None


def paragraph(text: str) -> str:
    """Return a sentence; on a terminal, wrapped between words."""
    columns = terminal_columns()
    return text if columns is None else "\n".join(_wrap(text, columns))


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _lines(rows: Iterable[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """Return the lines of the rows, with aligned columns."""
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for row in rows
        for line in zip_longest(*(_wrap(cell, width) for cell, width in zip(row, widths, strict=True)), fillvalue="")
    ]


def _fitted(rows: Sequence[Sequence[str]], width: int, *, headed: bool) -> str:
    """Return the rows as text that is not wider than `width`, unless a word is."""
    if not headed:
        *widths, _ = _widths(rows)
        left = width - _total([*widths, 0])
        return "\n".join(_lines(rows, [*widths, left]) if left >= _NARROW else _below(rows, width))
    wrapped = _wrapped_widths(rows, width)
    if wrapped is not None:
        return "\n".join(_lines(rows, wrapped))
    return _with_notes(rows, width) or _blocks(rows, width)


def _with_notes(rows: Sequence[Sequence[str]], width: int) -> str | None:
    """Return rows with the last column below them, if it is empty in some of them; None if that is not enough."""
    widths = _wrapped_widths([row[:-1] for row in rows], width)
    if widths is None or all(row[-1] for row in rows):
        return None
    title = rows[0][-1]
    lines = _lines([rows[0][:-1]], widths)
    for *row, note in rows[1:]:
        lines += _lines([row], widths)
        text = f"{title}: {note}" if title else note
        lines += [f"{_GAP}{line}" for line in _wrap(text, width - len(_GAP))] if note else []
    return "\n".join(lines)


def _wrapped_widths(rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return widths of the columns with which no row has more lines than necessary; None if it would have too many."""
    widths = _widths(rows)
    if _total(widths) <= width:
        return widths
    columns = [set(column) for column in zip(*rows, strict=True)]
    for most in range(2, _MOST_LINES + 1):
        least = [max(_least_width(cell, most) for cell in column) for column in columns]
        if most > _FEW_LINES:
            few = [max(_least_width(cell, _FEW_LINES) for cell in column) for column in columns]
            least = [max(width, min(other, _NARROW)) for width, other in zip(least, few, strict=True)]
        left = width - _total(least)
        if left < 0:
            continue
        # As many columns as possible are not wrapped, and the longest of the others gets the rest.
        for number in sorted(range(len(least)), key=lambda number: widths[number] - least[number]):
            if (more := widths[number] - least[number]) <= left:
                least[number] += more
                left -= more
        missing = [size - given for size, given in zip(widths, least, strict=True)]
        least[missing.index(max(missing))] += left
        return least
    return None


def _least_width(text: str, most: int) -> int:
    """Return the smallest width with which a text has at most so many lines."""
    low, high = max((len(part) for part, _ in _parts(text)), default=0), len(text)
    while low < high:
        middle = (low + high) // 2
        if len(_wrap(text, middle)) <= most:
            high = middle
        else:
            low = middle + 1
    return high


def _below(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of the rows, each with its last cell below the others, indented.

    After a short label, the cell stays in the same line if there is room for it.
    """
    natural = _widths(rows)
    used = _total([*natural[:-1], 0])
    widths = [size if size <= _INDENT else 0 for size in natural[:-1]]  # only a mark is aligned
    lines: list[str] = []
    for row in rows:
        if used <= _LABEL and used + len(row[-1]) <= width:
            lines += _lines([row], natural)
            continue
        start = _GAP.join(cell.ljust(size) for cell, size in zip(row, widths, strict=False)).rstrip()
        others: list[str] = []
        if len(start) > width:
            indent = " " * (len(start) - len(start.lstrip()))
            first, *others = _wrap(start, width - max(_INDENT, len(indent)))
            start = indent + first
        lines += [start] if start else []
        lines += [" " * _INDENT + line for line in [*others, *_wrap(row[-1], width - _INDENT)] if line]
    return lines


def _blocks(rows: Sequence[Sequence[str]], width: int) -> str:
    """Return a block of lines for each row, with the title before each cell. A cell without a title is a line."""
    titles, *others = rows
    used = max(map(len, titles)) + len(": ")
    blocks = []
    for row in others:
        lines: list[str] = []
        for title, cell in zip(titles, row, strict=True):
            if cell and title:
                first, *following = _wrap(cell, width - used)
                lines += [f"{title}:".ljust(used) + first, *(" " * used + line for line in following)]
            elif cell:
                lines += _wrap(cell, width)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _groups(rows: Sequence[Sequence[str]], width: int) -> str:
    """Return the name of each group, and below it, indented, the other columns of its rows."""
    titles, *others = rows
    groups: list[tuple[str, list[Sequence[str]]]] = []
    for name, *row in others:
        if name or not groups:
            groups.append((name, [titles[1:]]))
        groups[-1][1].append(row)
    parts = []
    for name, group in groups:
        lines = _fitted(group, width - len(_GAP), headed=True).split("\n")
        parts.append("\n".join([*(_wrap(name, width) if name else []), *(f"{_GAP}{line}".rstrip() for line in lines)]))
    return "\n\n".join(parts)


def _wrap(text: str, width: int) -> list[str]:
    """Return the text in lines, at least one, none of them wider than `width` unless a part of it is."""
    if len(text) <= width:
        return [text]
    lines = [""]
    for part, before in _parts(text):
        if lines[-1] and len(lines[-1]) + len(before) + len(part) > width:
            lines.append(part)
        else:
            lines[-1] += f"{before}{part}" if lines[-1] else part
    return lines


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a text between which it can be wrapped, each with what is before it on the same line.

    These are its words, a number with its unit, and within a sentence, the parts of a long path. A name, a path or a
    URL alone is one part, so that it can be copied.
    """
    words = _WORDS.findall(text)
    for word in words:
        path = len(words) > 1 and len(word) > _NARROW and "://" not in word
        for number, part in enumerate(re.split(r"(?<=/)(?=.)", word) if path else [word]):
            yield part, "" if number else " "


def count(value: float) -> str:
    """Format a number: 1234.5 -> "1,234"; small numbers keep three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def swept(value: Any) -> str:
    """Format a value of a sweep: 0.0003 is 0.0003, 0.00001 is 1e-05; lists and maps are JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def duration(seconds: float) -> str:
    """Format seconds in their two largest units: 88.2 -> "1 min 28 s"."""
    whole = max(0, round(seconds))
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        amount, whole = divmod(whole, size)
        if amount or (unit == "s" and not parts):
            parts.append(f"{amount} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def seconds(text: str) -> float | None:
    """Return the seconds of a duration: "90", "90s", "5m", "1.5h", "7d", "1h30m"; None if it is invalid."""
    if re.fullmatch(r"[0-9.]+", text):
        text += "s"
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)([smhdw])", text)
    if not parts or "".join(map("".join, parts)) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def clock(seconds: float) -> str:
    """Format seconds for a narrow space: 88.2 -> "1:28", 3700 -> "1:01:40"."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def local_time(time: str | None) -> str:
    """Format an RFC 3339 time in the local time zone: "2026-11-22 12:16:03 CET"; "" for None."""
    if not time:
        return ""

    try:
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    except (ValueError, OverflowError):  # in the first or the last year that Python knows
        return time


def age(since: str | None) -> str:
    """Format the time since an RFC 3339 time in its largest unit: "5 min"."""
    if not since:
        return ""

    seconds = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds())
    return " ".join(duration(seconds).split()[:2])


def size(count: int) -> str:
    """Format a number of bytes: 1234567 -> "1.23 MB"."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * scale:
            return f"{count / scale:.3g} {unit}" if count < 999.5 * scale else f"{count / scale:,.0f} {unit}"
    return f"{count} B"
