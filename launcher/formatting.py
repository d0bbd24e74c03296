"""Format tables, numbers and times for display."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any


def table(rows: Iterable[Sequence[str]], *, gap: str = "  ") -> str:
    """Format rows as aligned columns; the last column is not padded.

    A cell is one line, so that its text cannot look like another row.
    """
    rows = [[" ".join(cell.splitlines()) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


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
