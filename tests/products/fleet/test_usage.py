"""Chip-hours, waits and preemptions of a fleet, as the real Kueue measured them (tests/upstream/recordings/fleet)."""

from __future__ import annotations

import copy
import re
from datetime import datetime, tzinfo
from typing import Any, Self, cast

import pytest

from launcher.config.values.files import chart_defaults
from launcher.products.common import clock
from launcher.products.fleet import read, usage
from launcher.products.fleet.model import Attempt, FleetRun, Period, Wait
from launcher.products.fleet.prices import Price, Prices
from tests.products.fleet import half_hour
from tests.unit.recorded import Recorded

HOUR = 3600
COMMON = chart_defaults("queues").tree["common"]


def cluster(*without: str) -> Recorded:
    recording = half_hour.read()
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "v5e"},
        "spec": {
            "nodeLabels": {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                "cloud.google.com/gke-tpu-topology": "2x4",
            }
        },
    }
    objects = [obj for obj in recording.objects if obj["kind"] not in without]
    return Recorded([*copy.deepcopy(objects), flavor], recording.now)


def used(recorded: Recorded, *, start: float | None = None, prices: Prices | None = None) -> usage.FleetUse:
    recording = half_hour.read()
    state = read.read_cluster(cast(Any, recorded), COMMON)
    period = Period(recording.start if start is None else start, recording.end)
    return usage.use(state.runs, period, prices or Prices(), state.quotas, marks=state.marks)


@pytest.mark.parametrize("without", [(), ("Event",)])
def test_chip_hours_are_those_of_kueues_own_metric(without: tuple[str, ...]) -> None:
    """Kueue's metric was scraped every 5 s. Without events, earlier attempts are known as sums only."""
    recording = half_hour.read()
    fleet = used(cluster(*without))
    assert {team.name for team in fleet.teams} == recording.usage.keys()
    for team in fleet.teams:
        assert team.chip_hours == pytest.approx(recording.usage[team.name] / HOUR, rel=0.01), team.name
    assert fleet.total.chip_hours == pytest.approx(sum(recording.usage.values()) / HOUR, rel=0.01)
    assert any("only the total time" in mark for mark in fleet.marks) == bool(without)
    assert fleet.total.preemptions == 23
    assert fleet.total.runs == 50
    (flavor,) = fleet.flavors
    assert flavor.chips == sum(recording.chips.values())
    assert flavor.quota_hours is not None
    assert flavor.idle_hours == pytest.approx(flavor.quota_hours - flavor.chip_hours)


def test_chip_hours_of_a_part_of_the_time() -> None:
    """The sum of two parts is the whole: a run over the boundary is split."""
    recording = half_hour.read()
    middle = recording.start + 400
    state = read.read_cluster(cast(Any, cluster()), COMMON)
    parts = [
        usage.use(state.runs, period, Prices(), state.quotas).total.chip_hours
        for period in (Period(recording.start, middle), Period(middle, recording.end))
    ]
    assert all(parts)
    assert sum(parts) == pytest.approx(used(cluster()).total.chip_hours)


def test_waits_are_those_that_kueue_reports() -> None:
    """Kueue's events have each wait. After a second eviction, Kueue 0.19.2 counts from the first, and we do not."""
    fleet = used(cluster())
    reported: dict[str, list[int]] = {}
    for event in half_hour.read().of_kind("Event"):
        if match := re.search(r"wait time since queued was (\d+)s", event["message"]):
            reported.setdefault(event["involvedObject"]["name"], []).append(int(match[1]))
    assert sum(map(len, reported.values())) == sum(len(row.run.waits) for row in fleet.runs) == 73
    compared = 0
    for row in fleet.runs:
        waits = [wait.end - wait.start for wait in row.run.waits if wait.end is not None]
        (kueues,) = (seconds for name, seconds in reported.items() if name.startswith(f"jobset-{row.run.name}-"))
        if len(waits) <= 2:
            # Kueue counts from the eviction, and we from the end of the pods.
            assert waits == pytest.approx(kueues, abs=3), row.run.name
            compared += len(waits)
    assert compared > 50
    assert fleet.total.wait_median is not None
    assert fleet.total.wait_p95 is not None
    assert fleet.total.wait_p95 > fleet.total.wait_median
    assert not fleet.total.waiting


def run(**changes: Any) -> FleetRun:
    given: dict[str, Any] = {
        "uid": "u1",
        "name": "demo",
        "namespace": "research",
        "team": "research",
        "queue": "research",
        "state": "succeeded",
        "created": 0.0,
        "chips": {"v5e": 8},
        "attempts": [Attempt(HOUR, 2 * HOUR)],
        "waits": [Wait(0.0, HOUR)],
    }
    return FleetRun(**{**given, **changes})


PRICES = Prices({"v5e": Price(1.5, "Standard", "v5e", "on-demand")})


def test_a_preempted_attempt_costs_as_the_values_say() -> None:
    attempts = [Attempt(0, HOUR, "Preempted"), Attempt(2 * HOUR, 4 * HOUR)]
    preempted = run(attempts=attempts, preemptions=1)
    for charges, cost in ((True, 36), (False, 24)):
        prices = Prices(PRICES.by_flavor, "USD", charges)
        fleet = usage.use([preempted], Period(0, 5 * HOUR), prices, {})
        assert (fleet.total.chip_hours, fleet.total.preempted_hours, fleet.total.cost) == (24, 8, cost)


def test_an_unknown_price_is_a_mark_and_the_rest_is_counted() -> None:
    fleet = usage.use([run(), run(uid="u2", chips={"h100": 8})], Period(0, 2 * HOUR), PRICES, {"v5e": 8, "h100": 8})
    assert (fleet.total.cost, fleet.total.unpriced_hours) == (12, 8)
    assert [mark for mark in fleet.marks if "h100" in mark and "fleet.flavors.h100.perChipHour" in mark]


def test_losses_are_those_of_the_runs_with_a_record() -> None:
    recorded = run(goodput=0.75, losses={"starting": 300, "failures": 600})
    fleet = usage.use([recorded, run(uid="u2")], Period(0, 2 * HOUR), PRICES, {})
    assert fleet.total.goodput == 0.75
    assert fleet.total.lost == {"starting": pytest.approx(2 / 3), "failures": pytest.approx(4 / 3)}
    assert [mark for mark in fleet.marks if "1 run without a record" in mark]


def test_only_what_was_in_the_period_counts() -> None:
    fleet = usage.use([run()], Period(1.5 * HOUR, 3 * HOUR), PRICES, {"v5e": 16})
    assert fleet.total.chip_hours == 4
    assert fleet.total.wait_median is None  # it started before
    assert fleet.flavors[0].quota_hours == 24
    assert not usage.use([run()], Period(3 * HOUR, 4 * HOUR), PRICES, {}).runs


@pytest.mark.parametrize(
    ("ahead", "says"),
    [(630, r"is 10 min \d+ s ahead of the API server's"), (-7290, r"is 2 h 1 min behind the API server's"), (20, "")],
)
def test_the_time_is_that_of_the_api_server(ahead: float, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong clock of this machine changes no chip-hours. The API server's time is the header Date of its answers."""
    recorded = cluster()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(recorded.now.timestamp() + ahead, tz)

    monkeypatch.setattr(clock, "datetime", Clock)
    state = read.read_cluster(cast(Any, recorded), COMMON)
    assert state.now == pytest.approx(recorded.now.timestamp(), abs=60)
    assert re.search(says, " ".join(state.marks)) if says else not state.marks
