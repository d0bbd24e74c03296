"""The cost of a run's steps: chips x hours x price, by the price table in the values (common.prices)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

NOT_IN_IT = "Steps only: time in the queue, start-up, checkpoints, evaluations and restarts are not included."


Path = tuple[str, ...]


@dataclass(frozen=True)
class Cost:
    """The cost of `steps`: `hours` of `chips`. If no price is known, `usd` is None and `says` explains how to set one.

    `usd_per_chip_hour`, `region`, `date` and `source` are from the table. `tokens` is None if the tokens of a step are
    not known.
    """

    steps: int
    tokens: float | None
    hours: float
    chips: int
    chip_hours: float
    provisioning: str
    usd_per_chip_hour: float | None
    usd: float | None
    region: str
    date: str
    source: str
    says: str


def cost(
    values: Mapping[str, Any],
    *,
    step_seconds: float,
    chips: int,
    tokens_per_step: float | None,
    tokens: float | None = None,
    given: Collection[Path] = (),
) -> Cost | None:
    """Return the cost of train.steps, or of the steps that `tokens` take. None if neither is set.

    `values` are the effective values. `given` are the keys that the user set. A user's price has only the region, date
    and source that the user set.
    """
    steps = values["train"].get("steps")
    if tokens is not None and tokens_per_step:
        steps = math.ceil(tokens / tokens_per_step)
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        return None
    accelerator, provisioning = values["slice"]["accelerator"], values["slice"]["provisioning"]
    row = (values["common"].get("prices") or {}).get(accelerator) or {}
    price = (row.get("perChipHour") or {}).get(provisioning)
    hours = steps * step_seconds / 3600
    key = f"common.prices.{accelerator}.perChipHour.{provisioning}"
    own = _path(key) in given
    reported = {
        name: "" if own and _path(f"common.prices.{accelerator}.{name}") not in given else str(row.get(name, ""))
        for name in ("region", "date", "source")
    }
    return Cost(
        steps=steps,
        tokens=steps * tokens_per_step if tokens_per_step else None,
        hours=hours,
        chips=chips,
        chip_hours=chips * hours,
        provisioning=provisioning,
        usd_per_chip_hour=price,
        usd=None if price is None else chips * hours * price,
        **reported,
        says=NOT_IN_IT if price is not None else f"No price is known for {accelerator}, {provisioning}; set {key}.",
    )


def _path(key: str) -> Path:
    return tuple(key.split("."))
