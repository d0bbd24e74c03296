"""`launcher drill` in a namespace: each fault costs what the pages promise, and nothing is left of the drill."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.members import Member
from tests.e2e.needs import needs
from tests.e2e.teams import HOSTS, PATHS, PERIOD, Session, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]

_BOTH = {"kueue": "0.16", "image": True, "storage": True, "nodes": 1}
KINDS = [
    pytest.param("job-set", marks=needs(**_BOTH, jobset="0.10", cpu=2, memory_gib=10)),
    pytest.param("ray-job", marks=needs(**_BOTH, kuberay="1.5", jobset="0.10", cpu=2.5, memory_gib=13)),
]
FAULTS = ("process-killed", "pod-killed", "evicted", "preempted", "api-server-gone", "webhook-down")
HEADS = {"job-set": 0, "ray-job": 1}
_SECONDS = 6000.0


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_costs_what_the_pages_promise(session: Session, team: Team, kind: str) -> None:
    # A host more than a training: the run that receives the notifications.
    team.install(team.hosts(HOSTS + 1, HEADS[kind], preemption=True))
    team.make_claim()
    done = session.cli.launcher(
        "drill", *team.trainer("drill", kind), "-n", team.name, "--yes", "-o", "json", seconds=_SECONDS
    )
    assert done.out, str(done)
    certificate = json.loads(done.out)
    rows: dict[str, Any] = {row["fault"]: row for row in certificate["faults"]}
    ray = {"head-killed"} if kind == "ray-job" else set()
    assert set(rows) == {*FAULTS} | ray, str(done)
    problems = [problem for row in rows.values() for problem in row["problems"]]
    if session.facts.nodes > 1:  # processors can round differently
        problems = [problem for problem in problems if not problem.startswith("The numbers of")]
    assert problems == [], str(done)
    assert rows["pod-killed"]["steps_lost"] <= PERIOD
    assert rows["process-killed"]["steps_lost"] <= PERIOD
    assert rows["process-killed"]["in_place"]
    assert rows["evicted"]["steps_lost"] == rows["preempted"]["steps_lost"] == 0
    assert _left(session, team) == []


@needs(**_BOTH, jobset="0.10", cpu=2, memory_gib=10)
def test_a_member_learns_which_right_is_missing(session: Session, team: Team, member: Member) -> None:
    team.install(team.hosts(HOSTS))
    options = ("drill", *team.trainer("drill", "job-set"), "-n", team.name, "--yes")
    done = member.launcher(*options, "--fault", "pod-killed")
    assert done.code == 1, str(done)
    assert f"In the namespace {team.name} you may not delete pods, which a drill needs." in done.err, str(done)
    assert _left(session, team) == []


def _left(session: Session, team: Team) -> list[str]:
    """Return the runs and pods of drills in the namespace."""
    paths = [*(path.format(team.name) for path in PATHS.values()), f"/api/v1/namespaces/{team.name}/pods"]
    names = [str(each["metadata"]["name"]) for path in paths for each in session.api.items(path)]
    return [name for name in names if name.startswith("drill-")]
