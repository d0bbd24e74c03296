"""The price per hour of a cluster without runs: the slices that always run, by the price table of forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.products.gke.plan import Plan, Pool


@dataclass(frozen=True)
class Idle:
    """The price per hour in US dollars, and its parts as sentences. `unknown` names pools without a known price."""

    usd_per_hour: float
    parts: tuple[str, ...]
    unknown: tuple[str, ...]


def idle(plan: Plan) -> Idle:
    """Return the price of the chips that run without a run. The price of CPU nodes is not in the table."""
    total, parts, unknown = 0.0, [], []
    chips: dict[str, int] = {}
    for pool in plan.pools:
        if pool.min_slices and pool.chips:
            chips[pool.flavor] = chips.get(pool.flavor, 0) + pool.min_slices * pool.chips
    pools = {pool.flavor: pool for pool in plan.pools}
    for flavor, count in chips.items():
        price = _price(plan, pools[flavor])
        if price is None:
            unknown.append(f"{flavor} ({pools[flavor].accelerator}, {pools[flavor].provisioning})")
        else:
            total += count * price
            parts.append(f"{flavor}: {count} chips x ${price:g} = ${count * price:,.2f}")
    return Idle(total, tuple(parts), tuple(unknown))


def full(plan: Plan) -> tuple[float, tuple[str, ...]]:
    """Return the price per hour in US dollars if all slices run, and the flavors without a known price.

    The sum does not include these flavors.
    """
    total, unknown = 0.0, []
    for pool in plan.pools:
        if not pool.max_slices * pool.chips:
            continue
        price = _price(plan, pool)
        if price is None:
            unknown.append(pool.flavor)
        else:
            total += pool.max_slices * pool.chips * price
    return total, tuple(dict.fromkeys(unknown))


def _price(plan: Plan, pool: Pool) -> float | None:
    """Return the price of a chip for an hour in US dollars, or None if the table has none."""
    prices: Mapping[str, Any] = plan.queues["common"]["prices"]
    price: float | None = ((prices.get(pool.accelerator) or {}).get("perChipHour") or {}).get(pool.provisioning)
    return price
