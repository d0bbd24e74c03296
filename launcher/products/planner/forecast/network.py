"""The time of a collective over a slice's links, and over the network between slices.

The bounds of bidirectional rings and lines: the bytes that must cross a link, divided by its bandwidth. The formulas
are the textbook's (jax-ml.github.io/scaling-book, "Sharded matrices and how to multiply them").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.products.planner.forecast.chip import Chip


@dataclass(frozen=True)
class Torus:
    """A slice: its chips along each dimension, and whether the last chip of a dimension is linked to the first."""

    size: Sequence[int]
    wraps: Sequence[bool]


def collective_seconds(what: str, size: int, group: Mapping[str, Any], chip: Chip, torus: Torus) -> float:
    """Return the seconds of one collective.

    `size` is the bytes of a group's whole array. For a permute it is what one chip sends, for an all-to-all what it
    holds. trainer/aot/work.py describes `group`.
    """
    if what == "permute":
        if group.get("slices", 1) > 1:
            return size / chip.dcn + chip.latency
        load, hops = max(1, int(group["load"])), max(1, *group["hops"])
        return float(size * load / chip.ici + chip.latency * hops)
    count, slices = int(group["size"]), int(group["slices"])
    if count <= 1:
        return 0.0
    inner = count // slices
    if what == "all-to-all":
        size *= inner  # the whole array of a slice
    seconds = 0.0
    if inner > 1:
        seconds += _within(what, size, inner, group, chip, torus)
    if slices > 1:
        # Each chip exchanges its part of its slice's data with the corresponding chips of the other slices.
        share = size / inner
        rounds = 2.0 if what == "all-reduce" else 1.0
        seconds += rounds * share * (slices - 1) / slices / chip.dcn + chip.latency
    return seconds


def links_of(group: Mapping[str, Any]) -> frozenset[tuple[str, int, int]]:
    """Return the links that a collective uses, by dimension and direction. Other links stay available."""
    if int(group["slices"]) > 1:
        return frozenset({("dcn", 0, 0)})
    if "ways" in group:
        return frozenset(("ici", axis, step) for axis, step in group["ways"])
    return frozenset(
        ("ici", axis, step) for axis, extent in enumerate(group["extent"]) if extent > 1 for step in (1, -1)
    )


def _within(what: str, size: float, count: int, group: Mapping[str, Any], chip: Chip, torus: Torus) -> float:
    dims = [
        (int(extent), int(stride), wraps and extent * stride >= length and extent > 2)
        for extent, stride, length, wraps in zip(
            group["extent"], group["stride"], torus.size, torus.wraps, strict=False
        )
        if extent > 1
    ]
    if not dims:  # two cores of one chip
        return size * (count - 1) / count / chip.hbm
    hops = sum(extent - 1 for extent, _, _ in dims)
    if what == "all-to-all":
        # Half of the data must cross the middle of the longest dimension: one link each way, two on a ring.
        extent, stride, ring = max(dims)
        return size / count * extent * stride / (8 if ring else 4) / chip.ici + hops * chip.latency
    # The bound is the chip with the fewest links, for a line one at its end. Neighbours that are more than one link
    # apart share that link with the groups between them.
    links = sum((2 if ring else 1) / stride for _, stride, ring in dims)
    seconds = size * (count - 1) / count / (links * chip.ici)
    rounds = 2 if what == "all-reduce" else 1
    return rounds * (seconds + hops * chip.latency)
