"""The fleet as Python functions: `launcher fleet` prints their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.fleet import values as fleet_values
from launcher.products.fleet.model import FleetRun, Period
from launcher.products.fleet.prices import Prices, prices_of
from launcher.products.fleet.read import read_cluster
from launcher.products.fleet.times import moment
from launcher.products.fleet.usage import FleetUse, Gap, use


@dataclass(frozen=True)
class Fleet:
    """The use of the fleet, with the prices and the time zone that `to_csv` and the page need."""

    use: FleetUse
    prices: Prices
    zone: ZoneInfo

    def csv(self) -> str:
        """Return one row for each run, flavor and day."""
        from launcher.products.fleet.chargeback import to_csv

        return to_csv(self.use, self.prices, self.zone)


def fleet(
    since: str = "30d",
    until: str = "",
    *,
    team: str = "",
    target: Target = DEFAULT_TARGET,
    files: Sequence[str] = (),
    sets: Sequence[str] = (),
) -> Fleet:
    """Return who had which chips from `since` to `until`, what waited, what was lost, and what it cost.

    A time is a duration before now ("30d"), a date or a time (RFC 3339); `until` "" is now. `files` and `sets` are
    values with the key `fleet`. Raises LauncherError if the cluster does not answer or has no Kueue.
    """
    values = fleet_values.load(files, sets)
    cluster = read_cluster(target.cluster(), values.common)
    start = moment(since, cluster.now, values.zone, "--since")
    end = moment(until, cluster.now, values.zone, "--until") if until else cluster.now
    period = Period(start, max(start, min(end, cluster.now)))
    runs = [run for run in cluster.runs if not team or run.team == team]
    prices = prices_of(values.fleet, cluster.flavors)
    return Fleet(
        use(
            runs, period, prices, {} if team else cluster.quotas, gaps=_gaps(period, cluster.runs), marks=cluster.marks
        ),
        prices,
        values.zone,
    )


def _gaps(period: Period, runs: Sequence[FleetRun]) -> list[Gap]:
    """Return the part of the period before the first run that is known."""
    first = min((run.created for run in runs), default=period.end)
    if first <= period.start:
        return []
    why = "no older run is known; the API server has deleted it, or none existed"
    return [Gap(period.start, min(first, period.end), why)]
