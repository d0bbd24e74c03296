"""How amounts, times and lists are said."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from launcher.formatting import duration
from launcher.k8s.objects import seconds_since

_UNITS = {"google.com/tpu": ("chip", "chips"), "nvidia.com/gpu": ("GPU", "GPUs"), "cpu": ("CPU", "CPUs")}


def amount(resource: str, value: Decimal) -> str:
    """("google.com/tpu", 16) -> "16 chips"; ("memory", 8589934592) -> "8 GiB of memory"."""
    if resource in _UNITS:
        return f"{number(resource, value)} {_UNITS[resource][value != 1]}"
    return f"{number(resource, value)} of {resource}"


def number(resource: str, value: Decimal) -> str:
    """The amount without its resource: "16", "2.5", "8 GiB"."""
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
            if value >= 1024**power:
                return f"{_plain(value / 1024**power)} {unit}"
    return _plain(value)


def resource_word(resource: str) -> str:
    """("google.com/tpu") -> "chips"; what it is called without an amount."""
    return _UNITS[resource][1] if resource in _UNITS else resource


def time_since(since: str, now: datetime) -> str:
    """How long ago an RFC 3339 time was: "14 min", "2 h 5 min"; "" without a time."""
    return duration(seconds_since(since, now)) if since else ""


def join_words(items: Sequence[str], last: str = "and", most: int = 4) -> str:
    """["a", "b", "c"] -> "a, b and c"; more than `most` are counted."""
    shown = list(items[:most])
    if len(items) > most:
        shown.append(f"{len(items) - most} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} {last} {shown[-1]}"


def one_line(text: object, most: int = 300) -> str:
    """Text of any length as one line."""
    line = " ".join(str(text or "").split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def sentence(text: str) -> str:
    """Text that ends as a sentence does."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def clause(text: str) -> str:
    """A sentence that goes on after a colon: without its capital, where that is a plain word's."""
    first = text.split(" ", 1)[0]
    return text[:1].lower() + text[1:] if first in ("A", "All", "It", "Its", "No", "One", "The") else text


def ordinal(place: int) -> str:
    """1 -> "next", 2 -> "2nd"."""
    if place == 1:
        return "next"
    suffix = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"


def _plain(value: Decimal) -> str:
    return f"{value.quantize(Decimal('0.01')).normalize():,f}"
