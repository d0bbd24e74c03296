"""An upgrade from the charts of the release before this one to the current charts, with runs in the queues."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
import yaml

from tests.e2e.cli import Cli
from tests.e2e.needs import needs
from tests.e2e.teams import ADMIT, PATHS, START, Session, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

REACTION_SECONDS = 10.0
"""After this time, a controller would have reacted to a change by the upgrade."""


@needs(kueue="0.16", jobset="0.10", pods=True, earlier=True)
def test_an_upgrade_of_the_queues_does_not_change_runs(session: Session, team: Team, cli: Cli) -> None:
    assert session.charts is not None
    values = team.slices(3)
    file = cli.values(f"{team.name}-earlier", values)
    done = cli.run_helm(
        *("install", team.name, str(session.charts / "queues"), "-n", session.ident, "-f", file, "--wait")
    )
    assert done.code == 0, str(done)
    team.queues = True
    _create_with_earlier_chart(session, team, "works", 2)
    team.becomes("works", "running", seconds=START)
    _create_with_earlier_chart(session, team, "waits", 3)
    team.becomes("waits", "queued", seconds=ADMIT)
    before = _state(session, team)

    made = team.install(values)
    assert made["notReady"] == []
    listed = json.loads(cli.run_helm("list", "-n", session.ident, "-o", "json").out)
    chart = next(one["chart"] for one in listed if one["name"] == team.name)
    current = yaml.safe_load((_root() / "charts/queues/Chart.yaml").read_text())["version"]
    assert chart == f"slipway-queues-{current}"

    time.sleep(REACTION_SECONDS)  # no status shows that a controller has decided to do nothing
    assert _state(session, team) == before
    listed_runs = {name: run["state"] for name, run in team.listed().items()}
    assert listed_runs == {"works": "running", "waits": "queued"}
    team.submit(team.sleeper("new", 1))
    team.becomes("new", "running", seconds=START)
    team.finish("works", "new")
    team.becomes("waits", "running", seconds=START)
    team.finish("waits")


def _create_with_earlier_chart(session: Session, team: Team, name: str, slices: int) -> None:
    """Create the run as the chart's README describes: helm template | kubectl create."""
    assert session.charts is not None
    options = team.sleeper(name, slices)
    chart = str(session.charts / "run")
    done = session.cli.run_helm("template", name, chart, "-n", team.name, *options)
    assert done.code == 0, str(done)
    for obj in yaml.safe_load_all(done.out):
        if obj:
            path = PATHS["job-set"].format(team.name)
            with contextlib.closing(team.member.client()) as client:
                client.request("POST", path, obj)


def _state(session: Session, team: Team) -> dict[str, Any]:
    """The parts that must not change: the specs of the runs, their pods, and Kueue's conditions with their times."""
    runs = session.api.items(PATHS["job-set"].format(team.name))
    return {
        "runs": {run["metadata"]["name"]: (run["metadata"]["uid"], run["spec"]) for run in runs},
        "pods": sorted(pod["metadata"]["uid"] for run in ("works", "waits") for pod in team.pods(run)),
        "workloads": {
            run: [
                (one["type"], one["status"], one["lastTransitionTime"])
                for one in team.workload(run)["status"]["conditions"]
                if one["type"] in ("QuotaReserved", "Admitted", "Evicted", "Finished")
            ]
            for run in ("works", "waits")
        },
    }


def _root() -> Any:
    from tests.e2e.cli import ROOT

    return ROOT
