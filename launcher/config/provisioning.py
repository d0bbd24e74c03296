"""How the machines of a run are provisioned, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from launcher.config.suggest import join_or


def provisioning(slice_: Mapping[str, Any], flavor: str = "") -> str:
    """Return how the machines of a run are provisioned, from `slice` of its config; "" for on-demand.

    For a run with alternatives, it is the `flavor` that Kueue assigned, or else all of them: "spot or flex-start".
    """
    items = slice_.get("any")
    if not isinstance(items, list) or not items:
        way = _way(slice_)
        return "" if way == "on-demand" else way
    if flavor:
        return f"flavor {flavor}"
    return ways([{**slice_, **item} for item in items if isinstance(item, Mapping)])


def ways(slices: Iterable[Mapping[str, Any]]) -> str:
    """Return the ways of several slices: "spot or flex-start"."""
    return join_or(dict.fromkeys(map(_way, slices)))


def _way(slice_: Mapping[str, Any]) -> str:
    way = str(slice_.get("provisioning") or "on-demand")
    return f"reservation {slice_.get('reservation')}" if way == "reservation" else way
