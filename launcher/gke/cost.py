"""The price per hour of a cluster without runs: the slices that always run, by the price table of forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.gke.plan import Plan


@dataclass(frozen=True)
class Idle:
    """The price per hour in US dollars, and its parts as sentences. `unknown` names pools without a known price."""

    usd_per_hour: float
    parts: tuple[str, ...]
    unknown: tuple[str, ...]


def idle(plan: Plan) -> Idle:
    """Return the price of the chips that run without a run. The price of CPU nodes is not in the table."""
    prices: Mapping[str, Any] = plan.queues["common"]["prices"]
    total, parts, unknown = 0.0, [], []
    chips: dict[tuple[str, str, str], int] = {}
    for pool in plan.pools:
        if pool.min_slices and pool.chips:
            key = (pool.flavor, pool.accelerator, pool.provisioning)
            chips[key] = chips.get(key, 0) + pool.min_slices * pool.chips
    for (flavor, accelerator, provisioning), count in chips.items():
        price = ((prices.get(accelerator) or {}).get("perChipHour") or {}).get(provisioning)
        if price is None:
            unknown.append(f"{flavor} ({accelerator}, {provisioning})")
        else:
            total += count * price
            parts.append(f"{flavor}: {count} chips x ${price:g} = ${count * price:,.2f}")
    return Idle(total, tuple(parts), tuple(unknown))


def full(plan: Plan) -> float:
    """Return the price per hour in US dollars if all slices run, without those of unknown price."""
    prices: Mapping[str, Any] = plan.queues["common"]["prices"]
    total = 0.0
    for pool in plan.pools:
        price = ((prices.get(pool.accelerator) or {}).get("perChipHour") or {}).get(pool.provisioning)
        total += pool.max_slices * pool.chips * (price or 0)
    return total
