"""How long a collective takes over a slice's links, and over the network between slices.

The bounds of bidirectional rings and lines: what has to cross a link, over what it carries. The formulas are the
textbook's (jax-ml.github.io/scaling-book, "Sharded matrices and how to multiply them").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.forecast.chip import Chip


@dataclass(frozen=True)
class Torus:
    """A slice: its chips along each dimension, and whether the last of a dimension is linked to its first."""

    size: Sequence[int]
    wraps: Sequence[bool]


def collective_seconds(what: str, size: int, group: Mapping[str, Any], chip: Chip, torus: Torus) -> float:
    """The seconds of one collective.

    `size`: bytes of the whole array of a group; of a permute, what one chip sends, and of an all-to-all, what it has.
    `group` as trainer/aot/work.py describes it.
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
        size *= inner  # the whole of a slice
    seconds = 0.0
    if inner > 1:
        seconds += _within(what, size, inner, group, chip, torus)
    if slices > 1:
        # Each chip exchanges its part of what its slice has with those of the other slices.
        share = size / inner
        rounds = 2.0 if what == "all-reduce" else 1.0
        seconds += rounds * share * (slices - 1) / slices / chip.dcn + chip.latency
    return seconds


def links_of(group: Mapping[str, Any]) -> frozenset[tuple[str, int, int]]:
    """The links that a collective keeps busy, by dimension and direction: others go on beside it."""
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
    if not dims:  # two cores of a chip
        return size * (count - 1) / count / chip.hbm
    hops = sum(extent - 1 for extent, _, _ in dims)
    if what == "all-to-all":
        # Half of all has to cross the middle of the longest dimension: one link each way, two on a ring.
        extent, stride, ring = max(dims)
        return size / count * extent * stride / (8 if ring else 4) / chip.ici + hops * chip.latency
    # Into the chip that has the fewest links: of a line, one at its end. Neighbours that are further apart than one
    # link share it with the groups between them.
    links = sum((2 if ring else 1) / stride for _, stride, ring in dims)
    seconds = size * (count - 1) / count / (links * chip.ici)
    rounds = 2 if what == "all-reduce" else 1
    return rounds * (seconds + hops * chip.latency)
