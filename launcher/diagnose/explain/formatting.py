"""Format amounts, times and lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from launcher.config.accelerators import AMD_RESOURCE, NVIDIA_RESOURCE, TPU_RESOURCE
from launcher.formatting import duration
from launcher.k8s.objects import seconds_since

_UNITS = {
    TPU_RESOURCE: ("chip", "chips"),
    NVIDIA_RESOURCE: ("GPU", "GPUs"),
    AMD_RESOURCE: ("GPU", "GPUs"),
    "cpu": ("CPU", "CPUs"),
}


def amount(resource: str, value: Decimal) -> str:
    """Format an amount: ("google.com/tpu", 16) -> "16 chips"; ("memory", 8589934592) -> "8 GiB of memory"."""
    if resource in _UNITS:
        return f"{number(resource, value)} {_UNITS[resource][value != 1]}"
    return f"{number(resource, value)} of {resource}"


def number(resource: str, value: Decimal) -> str:
    """Format an amount without its resource: "16", "2.5", "8 GiB"."""
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
            if value >= 1024**power:
                return f"{_plain(value / 1024**power)} {unit}"
    return _plain(value)


def resource_word(resource: str) -> str:
    """Return the name of a resource without an amount: "google.com/tpu" -> "chips"."""
    return _UNITS[resource][1] if resource in _UNITS else resource


def time_since(since: str, now: datetime) -> str:
    """Return how long ago an RFC 3339 time was: "14 min", "2 h 5 min"; "" without a time."""
    return duration(seconds_since(since, now)) if since else ""


def join_words(items: Sequence[str], last: str = "and", most: int = 4) -> str:
    """Join words: ["a", "b", "c"] -> "a, b and c". Those after the first `most` are only counted."""
    shown = list(items[:most])
    if len(items) > most:
        shown.append(f"{len(items) - most} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} {last} {shown[-1]}"


def one_line(text: object, most: int = 300) -> str:
    """Return text as one line of at most `most` characters."""
    line = " ".join(str(text or "").split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def sentence(text: str) -> str:
    """Return text with a final period, unless it already ends like a sentence."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def clause(text: str) -> str:
    """Return a sentence to follow a colon, in lower case if its first word is a common word."""
    first = text.split(" ", 1)[0]
    return text[:1].lower() + text[1:] if first in ("A", "All", "It", "Its", "No", "One", "The") else text


def ordinal(place: int) -> str:
    """Return the ordinal of a place: 1 -> "next", 2 -> "2nd"."""
    if place == 1:
        return "next"
    suffix = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"


def _plain(value: Decimal) -> str:
    return f"{value.quantize(Decimal('0.01')).normalize():,f}"
