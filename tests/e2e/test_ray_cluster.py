"""A team's long-lived Ray cluster, and a job in it."""

from __future__ import annotations

import pytest

from tests.e2e.cli import Cli
from tests.e2e.needs import needs
from tests.e2e.teams import HOSTS, REMOVED, STEPS, TRAINED, Session, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

CLUSTER = "ring"


@needs(kueue="0.16", kuberay="1.5", image=True, storage=True, nodes=1, cpu=2, memory_gib=10)
def test_a_job_trains_in_a_long_lived_ray_cluster(session: Session, team: Team, cli: Cli) -> None:
    team.install(team.hosts(HOSTS, 1, clusters=(CLUSTER,)))
    team.make_claim()
    options = team.trainer("job", "ray-cluster", cluster=CLUSTER)
    made = cli.query("install", "ray-cluster", *options, "--timeout", "15m", seconds=1000)
    assert made["notReady"] == []
    shown = cli.query("list", "--clusters", "-n", team.name)
    assert [one["name"] for one in shown] == [CLUSTER]
    team.submit(options)
    team.becomes("job", "succeeded", seconds=TRAINED)
    status = team.status("job")
    assert (status["step"], status["steps"]) == (STEPS, STEPS)
    removed = cli.query("uninstall", CLUSTER, "-n", team.name, "--yes")
    assert removed["left"] == []
    cli.wait("the cluster's pods to go", lambda: team.pods("job") == [] and not _pods(session, team), REMOVED)


def _pods(session: Session, team: Team) -> list[str]:
    return [pod["metadata"]["name"] for pod in session.api.items(f"/api/v1/namespaces/{team.name}/pods")]
