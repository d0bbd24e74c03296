"""The fleet as Python functions: `launcher fleet` prints their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from launcher import distribution
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.fleet import values as fleet_values
from launcher.products.fleet.chargeback import to_csv
from launcher.products.fleet.model import FleetRun, Period
from launcher.products.fleet.prices import Prices, prices_of
from launcher.products.fleet.read import read_cluster
from launcher.products.fleet.recorded import contradiction, joined, of_record
from launcher.products.fleet.times import moment
from launcher.products.fleet.usage import FleetUse, Gap, use
from launcher.products.records import reader

if TYPE_CHECKING:
    from launcher.products.fleet.board.server import BoardServer


@dataclass(frozen=True)
class Fleet:
    """The use of the fleet, with the prices and the time zone that `to_csv` and the page need."""

    use: FleetUse
    prices: Prices
    zone: ZoneInfo

    def csv(self) -> str:
        """Return one row for each run, flavor and day."""
        return to_csv(self.use, self.prices, self.zone)


def fleet(
    since: str = "30d",
    until: str = "",
    *,
    team: str = "",
    records: Sequence[str] = (),
    target: Target = DEFAULT_TARGET,
    files: Sequence[str] = (),
    sets: Sequence[str] = (),
) -> Fleet:
    """Return who had which chips from `since` to `until`, what waited, what was lost, and what it cost.

    `records` are folders and URLs of buckets with the records of runs (`launcher record`), which add what the API
    server no longer has. A time is a duration before now ("30d"), a date or a time (RFC 3339); `until` "" is now.
    `files` and `sets` are values with the key `fleet`. Raises LauncherError if the cluster does not answer or has no
    Kueue.
    """
    values = fleet_values.load(files, sets)
    cluster = read_cluster(target.cluster(), values.common)
    start = moment(since, cluster.now, values.zone, "--since")
    end = moment(until, cluster.now, values.zone, "--until") if until else cluster.now
    period = Period(start, max(start, min(end, cluster.now)))
    recorded, problems = _recorded(records, cluster.namespace)
    problems += [sentence for run in recorded if (sentence := contradiction(run, cluster.now))]
    known = joined(cluster.runs, recorded)
    runs = [run for run in known if not team or run.team == team]
    prices = prices_of(values.fleet, cluster.flavors)
    return Fleet(
        use(
            runs,
            period,
            prices,
            {} if team else cluster.quotas,
            gaps=_gaps(period, known),
            marks=[*cluster.marks, *problems],
        ),
        prices,
        values.zone,
    )


def board(*, target: Target = DEFAULT_TARGET, port: int = 0) -> BoardServer:
    """Return a server of the live page on a local port; 0 selects a free one. Its `url` opens the page in a browser.

        with api.board() as server:
            print(server.url)
            server.serve_forever()

    Raises LauncherError if the port cannot be used.
    """
    from launcher.products.fleet.board.server import BoardServer

    return BoardServer(target, port)


def top(*, target: Target = DEFAULT_TARGET) -> None:
    """Show the board in the terminal until the user quits. Raises LauncherError if textual is not installed."""
    if find_spec("textual") is None:
        raise LauncherError(
            "Textual, which draws the table, is not installed in this Python.",
            f"Install it next to the launcher: {distribution.install('fleet')}.",
        )
    from launcher.products.fleet.top import Top

    Top(target).run()


def _recorded(folders: Sequence[str], namespace: str) -> tuple[list[FleetRun], list[str]]:
    """Return the runs of records, of one namespace if it is given, and a sentence for each record that is left out."""
    runs: list[FleetRun] = []
    problems: list[str] = []
    for folder in folders:
        records = reader.read(folder)
        problems += [f"{problem} It is left out." for problem in records.problems]
        runs += [run for run in map(of_record, records.records) if run is not None]
    return [run for run in runs if not namespace or run.namespace == namespace], problems


def _gaps(period: Period, runs: Sequence[FleetRun]) -> list[Gap]:
    """Return the part of the period before the first run that is known."""
    first = min((run.created for run in runs), default=period.end)
    if first <= period.start:
        return []
    why = "no older run is known; it was deleted and has no record, or none existed"
    return [Gap(period.start, min(first, period.end), why)]
