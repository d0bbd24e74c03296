"""The price of a chip-hour by flavor: from the values of launcher fleet, else from the price table (common.prices)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.products.planner.simulation.platform import SliceFlavor

_CATEGORIES = {"on-demand": "Standard", "spot": "Dynamic", "flex-start": "Dynamic", "reservation": "Committed"}
"""FOCUS's PricingCategory of a kind of provisioning."""


@dataclass(frozen=True)
class Price:
    """The price of a chip-hour. `category` is FOCUS's PricingCategory: Standard, Dynamic or Committed."""

    per_chip_hour: float
    category: str
    accelerator: str
    provisioning: str


@dataclass(frozen=True)
class Prices:
    """The prices of flavors. With `charges_preempted`, attempts that Kueue preempted cost as the others do."""

    by_flavor: Mapping[str, Price] = field(default_factory=dict)
    currency: str = "USD"
    charges_preempted: bool = True

    def of(self, flavor: str) -> Price | None:
        return self.by_flavor.get(flavor)

    def cost(self, flavor: str, hours: float) -> float | None:
        """Return the cost of chip-hours; None if the price is not known, and 0 for no hours."""
        price = self.of(flavor)
        return price.per_chip_hour * hours if price is not None else None if hours else 0.0


def prices_of(values: Mapping[str, Any], flavors: Mapping[str, SliceFlavor]) -> Prices:
    """Return the prices. `values` has the effective values of the key `fleet`; `flavors` have those of the table."""
    known = {}
    for name in {*flavors, *values["flavors"]}:
        flavor, own = flavors.get(name, SliceFlavor(name)), values["flavors"].get(name) or {}
        amount = own.get("perChipHour", flavor.usd)
        if amount is not None:
            category = own.get("pricingCategory") or _CATEGORIES.get(flavor.provisioning, "Standard")
            known[name] = Price(float(amount), category, flavor.accelerator, flavor.provisioning)
    return Prices(known, values["currency"], values["preempted"] == "charge")
