"""GKE's multislice tutorial (three v5e slices, Kueue and JobSet), with simulated chips or with shares of cpu."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.members import Member
from tests.e2e.needs import needs
from tests.e2e.teams import ADMIT, REMOVED, START, Session, Team, end_pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

QUEUED = ("queued", "preempted")


@needs(kueue="0.16", jobset="0.10", pods=True)
def test_three_slices_run_alone_then_one_and_two_together(session: Session, team: Team, member: Member) -> None:
    team.install(team.slices(3))
    team.submit(team.sleeper("three", 3))
    team.becomes("three", "running", seconds=START)
    assert len(team.pods("three")) == 6
    team.submit(team.sleeper("one", 1))
    team.submit(team.sleeper("two", 2))
    listed = team.listed()
    assert {name: run["state"] for name, run in listed.items()} == {
        "three": "running",
        "one": "queued",
        "two": "queued",
    }
    assert (listed["one"]["position"], listed["two"]["position"]) == (1, 2)
    for name in ("one", "two"):
        assert team.pods(name) == [], "a queued run has no pods"
        explanation = member.query("explain", name, "-n", team.name)
        assert "three" in explanation["headline"], explanation["headline"]
        assert explanation["evidence"], explanation
    team.finish("three")
    team.becomes("one", "running", seconds=START)
    team.becomes("two", "running", seconds=START)
    assert team.status("one")["state"] == "running", "one and two run at the same time"
    assert (len(team.pods("one")), len(team.pods("two"))) == (2, 4)
    if session.chips:
        hosts = [pod["spec"]["nodeName"] for name in ("one", "two") for pod in team.pods(name)]
        assert len(set(hosts)) == 6, "each host of a slice is on a separate machine"
    team.finish("one", "two")
    assert {run["state"] for run in team.listed().values()} == {"succeeded"}


@needs(kueue="0.16", jobset="0.10", pods=True)
def test_a_higher_priority_preempts_and_the_lower_one_resumes(team: Team, member: Member) -> None:
    team.install(team.slices(3, preemption=True))
    team.submit(team.sleeper("low", 3, priority="low"))
    team.becomes("low", "running", seconds=START)
    team.submit(team.sleeper("high", 1, priority="high"))
    team.becomes("high", "running", seconds=START)
    low = team.becomes("low", *QUEUED, seconds=REMOVED)
    assert team.pods("low") == []
    explanation = member.query("explain", "low", "-n", team.name)
    assert "high" in explanation["headline"], explanation["headline"]
    team.finish("high")
    low = team.becomes("low", "running", seconds=START)
    assert low["attempt"] == 1, "a preemption does not start a new attempt"
    team.finish("low")
    ended = team.status("low")
    assert ended["restarts"] == 0, "a preemption is not a failure"
    assert ended["preemptions"] >= 1


@needs(kueue="0.16", jobset="0.10", pods=True)
def test_cancel_frees_the_slices_and_keeps_the_record(session: Session, team: Team, member: Member) -> None:
    team.install(team.slices(3))
    team.submit(team.sleeper("first", 3))
    team.becomes("first", "running", seconds=START)
    team.submit(team.sleeper("second", 3))
    team.becomes("second", "queued", seconds=ADMIT)
    team.submit(team.sleeper("third", 1))
    cancelled = member.query("cancel", "third", "-n", team.name)
    assert cancelled["state"] == "cancelled", "a queued run is cancelled at once"
    member.query("cancel", "first", "-n", team.name)
    team.becomes("first", "cancelled", seconds=REMOVED)
    # Kueue admits the next run only after the slices are free.
    team.becomes("second", "running", seconds=START)
    assert team.pods("first") == []
    assert {name: run["state"] for name, run in team.listed().items()} == {
        "first": "cancelled",
        "second": "running",
        "third": "cancelled",
    }
    again = member.query("cancel", "first", "-n", team.name)
    assert again["state"] == "cancelled"
    refused = member.launcher("delete", "second", "-n", team.name, "--yes")
    assert refused.code == 1, "a running run is not deleted"
    member.query("cancel", "second", "-n", team.name)
    team.becomes("second", "cancelled", seconds=REMOVED)
    for name in ("first", "second", "third"):
        team.delete(name)
    member.wait("the records to go", lambda: team.listed() == {}, REMOVED, seen=lambda: str(list(team.listed())))


def _kill(session: Session, team: Team, pod: dict[str, Any]) -> None:
    if session.chips:
        end_pod(session.api, pod, code=1)
    else:
        session.api.delete(f"/api/v1/namespaces/{team.name}/pods/{pod['metadata']['name']}", grace=1)


@needs(kueue="0.16", jobset="0.10", pods=True, rights=("delete pods",))
def test_a_killed_pod_restarts_the_run(session: Session, team: Team) -> None:
    team.install(team.slices(1))
    team.submit(team.sleeper("killed"))
    team.becomes("killed", "running", seconds=START)
    before = {pod["metadata"]["uid"] for pod in team.pods("killed")}
    victim = team.pods("killed")[0]
    _kill(session, team, victim)

    def replaced() -> bool:
        return len(now := {pod["metadata"]["uid"] for pod in team.pods("killed")}) == 2 and not now & before

    team.member.wait("both pods to be new ones", replaced, START, run="killed", namespace=team.name)
    status = team.becomes("killed", "running", seconds=START)
    assert status["restarts"] >= 1
    team.finish("killed")


@needs(kueue="0.16", jobset="0.12", pods=True, restart_job=True, rights=("delete pods",))
def test_a_killed_pod_restarts_only_its_slice(session: Session, team: Team) -> None:
    """run.restartAction: RestartJob."""
    team.install(team.slices(2))
    team.submit(team.sleeper("slices", 2, action="RestartJob"))
    team.becomes("slices", "running", seconds=START)

    def of_slice(index: int) -> set[str]:
        mark = "jobset.sigs.k8s.io/job-index"
        return {pod["metadata"]["uid"] for pod in team.pods("slices") if pod["metadata"]["labels"][mark] == str(index)}

    before = [of_slice(0), of_slice(1)]
    assert [len(uids) for uids in before] == [2, 2]
    victim = next(pod for pod in team.pods("slices") if pod["metadata"]["uid"] in before[0])
    _kill(session, team, victim)

    def replaced() -> bool:
        return len(now := of_slice(0)) == 2 and not now & before[0]

    team.member.wait("the pods of slice 0 to be new ones", replaced, START, run="slices", namespace=team.name)
    status = team.becomes("slices", "running", seconds=START)
    assert (status["restarts"], status["preemptions"]) == (1, 0)
    assert of_slice(1) == before[1], "the pods of the other slice stay"
    team.finish("slices")
