"""The CSV of launcher fleet: days, time zones, preempted attempts, and sums."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from launcher.products.fleet.chargeback import COLUMNS, days, to_csv
from launcher.products.fleet.model import Attempt, FleetRun, Period
from launcher.products.fleet.prices import Price, Prices
from launcher.products.fleet.usage import use

HOUR = 3600
BERLIN = ZoneInfo("Europe/Berlin")


def in_berlin(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def run(*attempts: Attempt) -> FleetRun:
    return FleetRun(
        "u1", 'a, "b"\n=1', "research", "research", "training", "failed", 0.0, {"v5e": 8}, attempts, user="=1+1"
    )


def test_a_day_has_23_or_25_hours_when_the_clocks_change() -> None:
    spring = Period(in_berlin("2026-03-28T12:00"), in_berlin("2026-03-30T12:00"))
    assert [(day.end - day.start) / HOUR for day in days(spring, BERLIN)] == [12, 23, 12]
    autumn = Period(in_berlin("2026-10-24T12:00"), in_berlin("2026-10-26T12:00"))
    assert [(day.end - day.start) / HOUR for day in days(autumn, BERLIN)] == [12, 25, 12]


@pytest.mark.parametrize(("charges", "costs"), [(True, ["16", "48"]), (False, ["8", "48"])])
def test_a_run_over_midnight_has_a_row_for_each_day(charges: bool, costs: list[str]) -> None:
    start = in_berlin("2026-11-01T22:00")
    attempts = Attempt(start, start + HOUR, "Preempted"), Attempt(start + HOUR, start + 8 * HOUR)
    prices = Prices({"v5e": Price(1.0, "Standard", "v5e", "on-demand")}, "EUR", charges)
    period = Period(start - HOUR, start + 24 * HOUR)
    rows = list(csv.DictReader(io.StringIO(to_csv(use([run(*attempts)], period, prices, {}), prices, BERLIN))))
    assert tuple(rows[0]) == COLUMNS
    assert [row["BilledCost"] for row in rows] == costs
    assert [row["ConsumedQuantity"] for row in rows] == ["16", "48"]
    assert [row["x_PreemptedQuantity"] for row in rows] == ["8", "0"]
    assert [row["ChargePeriodEnd"] for row in rows] == ["2026-11-01T23:00:00Z", "2026-11-02T21:00:00Z"]
    assert {(row["ResourceName"], row["x_User"]) for row in rows} == {('a, "b"\n=1', "'=1+1")}


def test_the_rows_add_up_to_the_total() -> None:
    begin = in_berlin("2026-10-20T00:00")
    attempts = [Attempt(begin + 11.3 * HOUR * number, begin + 11.3 * HOUR * number + 10 * HOUR) for number in range(20)]
    prices = Prices({"v5e": Price(0.7, "Committed", "v5e", "reservation")})
    fleet = use([run(*attempts)], Period(begin, begin + 300 * HOUR), prices, {})
    rows = list(csv.DictReader(io.StringIO(to_csv(fleet, prices, BERLIN))))
    assert len(rows) > 8
    assert sum(float(row["BilledCost"]) for row in rows) == pytest.approx(fleet.total.cost, abs=1e-4)


def test_an_unknown_price_is_an_empty_cost() -> None:
    fleet = use([run(Attempt(0, HOUR))], Period(0, HOUR), Prices(), {})
    (row,) = csv.DictReader(io.StringIO(to_csv(fleet, Prices(), BERLIN)))
    assert (row["BilledCost"], row["ConsumedQuantity"]) == ("", "8")
