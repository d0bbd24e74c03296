"""The CSV for a finance team: one row for each run, flavor and day, with the columns of FOCUS 1.2 that apply.

Days are those of the time zone in the values, so a day can have 23 or 25 hours. The rows of a run add up to its cost.
FOCUS: https://focus.finops.org/focus-specification/v1-2/
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from launcher.products.fleet.model import FleetRun, Period
from launcher.products.fleet.prices import Prices
from launcher.products.fleet.usage import FleetUse

COLUMNS = (
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "BilledCost",
    "EffectiveCost",
    "ListUnitPrice",
    "BillingCurrency",
    "ChargeCategory",
    "ChargeDescription",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ServiceCategory",
    "ServiceName",
    "SubAccountId",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "SkuId",
    "Tags",
    "x_User",
    "x_Namespace",
    "x_Queue",
    "x_PreemptedQuantity",
)
"""FOCUS's names. Those with x_ are our own, as FOCUS names columns of a provider."""


def days(period: Period, zone: ZoneInfo) -> Iterator[Period]:
    """Yield the period in parts that end at each midnight of the time zone."""
    start = period.start
    while start < period.end:
        date = datetime.fromtimestamp(start, zone).date() + timedelta(days=1)
        midnight = datetime.combine(date, time(), zone).timestamp()
        yield Period(start, min(midnight, period.end))
        start = midnight


def to_csv(fleet: FleetUse, prices: Prices, zone: ZoneInfo) -> str:
    """Return the CSV. A cost is empty if no price is known. Times are RFC 3339 in UTC, as FOCUS requires."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180
    writer.writerow(COLUMNS)
    for day in days(fleet.period, zone):
        for row in fleet.runs:
            for cells in _rows(row.run, day, fleet.period, prices):
                writer.writerow(cells)
    return text.getvalue()


def _rows(run: FleetRun, day: Period, period: Period, prices: Prices) -> Iterator[list[str]]:
    held = preempted = 0.0
    for attempt, seconds in run.held(day):
        held += seconds
        preempted += seconds if attempt.evicted == "Preempted" else 0.0
    if not held:
        return
    for flavor, chips in run.chips.items():
        price = prices.of(flavor)
        hours, lost = chips * held / 3600, chips * preempted / 3600
        charged = hours if prices.charges_preempted else hours - lost
        cost = "" if price is None else _number(charged * price.per_chip_hour)
        yield [
            *map(_time, (period.start, period.end, day.start, day.end)),
            cost,
            cost,
            "" if price is None else _number(price.per_chip_hour),
            prices.currency,
            "Usage",
            f"{chips} chips of {flavor} for the run {run.name}",
            "" if price is None else price.category,
            _number(charged),
            "Chip-Hours",
            _number(hours),
            "Chip-Hours",
            "AI and Machine Learning",
            "Slipway",
            run.team,
            run.uid,
            run.name,
            flavor,
            "" if price is None else " ".join(filter(None, (price.accelerator, price.provisioning))),
            json.dumps({"priority": run.priority} if run.priority else {}),
            _text(run.user),
            run.namespace,
            run.queue,
            _number(lost),
        ]


def _text(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula. Anybody can write a user into an annotation."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _number(value: float) -> str:
    """Return a number without an exponent, to a millionth."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
