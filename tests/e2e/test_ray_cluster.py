"""A team's long-lived Ray cluster in its queue, and a job in such a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import urllib3

from tests.e2e.members import Member
from tests.e2e.needs import needs
from tests.e2e.teams import HOSTS, REMOVED, START, STEPS, TRAINED, Session, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

CLUSTER = "ring"


@needs(kueue="0.16", jobset="0.10", kuberay="1.5", image=True, storage=True, nodes=1, cpu=2, memory_gib=10)
def test_a_long_lived_ray_cluster_waits_in_the_queue(session: Session, team: Team, member: Member) -> None:
    team.install(team.hosts(HOSTS, 1, clusters=(CLUSTER,)))
    team.make_claim()
    team.submit(team.filler("other", HOSTS + 1, 3600, priority="high"))
    team.becomes("other", "running", seconds=START)
    options = team.trainer("job", "ray-cluster", cluster=CLUSTER)
    member.query("install", "ray-cluster", *options, "--timeout", "0", "--yes")

    def shown() -> tuple[str, int]:
        (one,) = member.query("list", "--clusters", "-n", team.name)
        return one["state"], one["hosts"]

    member.wait("the cluster to wait", lambda: shown() == ("suspended", 0), START, seen=lambda: str(shown()))
    member.query("cancel", "other", "-n", team.name)
    member.wait("all hosts to be ready", lambda: shown() == ("ready", HOSTS), START, seen=lambda: str(shown()))
    removed = member.query("uninstall", CLUSTER, "-n", team.name, "--yes")
    assert removed["left"] == []
    member.wait("the cluster's pods to go", lambda: not _ray_pods(session, team), REMOVED)


@needs(kueue="0.16", kuberay="1.5", image=True, storage=True, nodes=1, cpu=2, memory_gib=10, ray=True)
def test_a_job_trains_in_a_long_lived_ray_cluster(session: Session, team: Team, member: Member) -> None:
    team.install(team.hosts(HOSTS, 1, clusters=(CLUSTER,)))
    team.make_claim()
    options = team.trainer("job", "ray-cluster", cluster=CLUSTER)
    made = member.query("install", "ray-cluster", *options, "--timeout", "15m", seconds=1000)
    assert made["notReady"] == []
    shown = member.query("list", "--clusters", "-n", team.name)
    assert [one["name"] for one in shown] == [CLUSTER]
    team.submit(options)
    team.becomes("job", "succeeded", seconds=TRAINED)
    status = team.status("job")
    assert (status["step"], status["steps"]) == (STEPS, STEPS)
    with member.follow("dashboard", CLUSTER, "-n", team.name, "-o", "json") as file:
        member.wait("the dashboard to answer", lambda: _answers(file), REMOVED, seen=file.read_text)
    removed = member.query("uninstall", CLUSTER, "-n", team.name, "--yes")
    assert removed["left"] == []
    member.wait("the cluster's pods to go", lambda: team.pods("job") == [] and not _pods(session, team), REMOVED)


def _answers(file: Path) -> bool:
    """Whether the dashboard that printed `file` answers."""
    printed = file.read_text()
    if not printed.endswith("}\n"):
        return False
    served = json.loads(printed)
    login = {"Authorization": f"Bearer {served['token']}"}
    return urllib3.request("GET", f"{served['address']}/api/version", headers=login, retries=False).status == 200


def _pods(session: Session, team: Team) -> list[str]:
    return [pod["metadata"]["name"] for pod in session.api.items(f"/api/v1/namespaces/{team.name}/pods")]


def _ray_pods(session: Session, team: Team) -> list[str]:
    path = f"/api/v1/namespaces/{team.name}/pods?labelSelector=ray.io/cluster={CLUSTER}"
    return [pod["metadata"]["name"] for pod in session.api.items(path)]
