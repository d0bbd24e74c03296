"""The real trainer on the cluster's CPUs: runs succeed, and neither killed pods nor preemptions change a loss."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import logs
from tests.e2e.conftest import new_team
from tests.e2e.members import Member
from tests.e2e.needs import needs
from tests.e2e.teams import HOSTS, PERIOD, START, STEPS, TRAINED, Session, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

_BOTH = {"kueue": "0.16", "image": True, "storage": True, "nodes": 1}
KINDS = [
    pytest.param("job-set", marks=needs(**_BOTH, jobset="0.10", cpu=1.5, memory_gib=7)),
    pytest.param("ray-job", marks=needs(**_BOTH, kuberay="1.5", cpu=2, memory_gib=10)),
]
"""Two hosts with half a core and 3 GiB each, a head of the same size under Ray, and a little more for other pods."""
HEADS = {"job-set": 0, "ray-job": 1}


@pytest.fixture(scope="session")
def undisturbed(session: Session) -> Iterator[_Undisturbed]:
    found = _Undisturbed(session)
    yield found
    for team in found.teams:
        team.remove()


class _Undisturbed:
    """Logs of undisturbed runs, one of each kind. Each run is trained when the first test needs it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.teams: list[Team] = []
        self._logs: dict[str, logs.Log] = {}

    def __call__(self, kind: str) -> logs.Log:
        if kind not in self._logs:
            team = new_team(self.session)
            self.teams.append(team)
            team.install(team.hosts(HOSTS, HEADS[kind]))
            team.make_claim()
            team.submit(team.trainer("calm", kind))
            with team.member.follow("logs", "calm", "-f", "--raw", "-n", team.name) as file:
                team.becomes("calm", "succeeded", seconds=TRAINED)
                wait_for_last_step(team, "calm", lambda: team.log(file))
                self._logs[kind] = team.log(file)
        return self._logs[kind]


def wait_for_last_step(team: Team, run: str, read: object, steps: int = STEPS) -> None:
    """Wait until the log has the last step."""
    assert callable(read)
    team.member.wait(
        f"the log of {team.name}/{run} to have step {steps - 1}", lambda: read().last_step == steps - 1, 60
    )


def tolerance(session: Session) -> float:
    """The allowed relative difference of losses: 0 on one machine; 1 % on several, whose processors can round
    differently."""
    return 0.0 if session.facts.nodes == 1 else 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_trains_and_succeeds(session: Session, undisturbed: _Undisturbed, kind: str) -> None:
    log = undisturbed(kind)
    assert log.starts == [0]
    assert sorted(log.losses) == list(range(STEPS))
    first, last = log.losses[0][0], log.losses[STEPS - 1][0]
    assert last < first - 1, f"the loss went from {first} to {last}"
    team = next(t for t in undisturbed.teams if "calm" in t.listed() and t.status("calm")["kind"] == kind)
    status = team.status("calm")
    assert (status["state"], status["restarts"]) == ("succeeded", 0)
    again = team.member.launcher("submit", *team.trainer("calm", kind))
    assert again.code == 0, "a run that succeeded is not run again"


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_pod_costs_no_step(
    session: Session, team: Team, member: Member, undisturbed: _Undisturbed, kind: str
) -> None:
    calm = undisturbed(kind)
    team.install(team.hosts(HOSTS, HEADS[kind]))
    team.make_claim()
    team.submit(team.trainer("killed", kind))
    with member.follow("logs", "killed", "-f", "--raw", "-n", team.name) as file:
        _until_step(team, "killed", lambda: team.log(file).last_step, PERIOD + 10)
        victim = _host(team, "killed", kind)
        session.api.delete(f"/api/v1/namespaces/{team.name}/pods/{victim}", grace=1)
        team.becomes("killed", "succeeded", seconds=TRAINED)
        wait_for_last_step(team, "killed", lambda: team.log(file))
        log = team.log(file)
    _check_resumes(log)
    assert logs.differences(log, calm, tolerance(session)) == []


@needs(**{**_BOTH, "jobset": "0.12"}, restart_job=True, cpu=1.5, memory_gib=7)
def test_a_killed_slice_costs_no_step_and_the_pod_of_the_other_stays(
    session: Session, team: Team, member: Member, undisturbed: _Undisturbed
) -> None:
    """The killed one has the coordinator, and prints the steps."""
    calm = undisturbed("job-set")
    team.install(team.hosts(HOSTS))
    team.make_claim()
    team.submit(team.trainer("slices", "job-set", slices=True))

    def pods() -> dict[str, str]:
        mark = "jobset.sigs.k8s.io/job-index"
        return {pod["metadata"]["labels"][mark]: pod["metadata"]["name"] for pod in team.pods("slices")}

    with member.follow("logs", "slices", "-f", "--raw", "-n", team.name) as file:
        _until_step(team, "slices", lambda: team.log(file).last_step, PERIOD + 10)
        before = pods()
        session.api.delete(f"/api/v1/namespaces/{team.name}/pods/{before['0']}", grace=0)
        member.wait("the pod of slice 0 to be another one", lambda: pods().get("0", before["0"]) != before["0"], START)
        team.becomes("slices", "running", seconds=START)
        assert pods()["1"] == before["1"]
        team.becomes("slices", "succeeded", seconds=TRAINED)
        wait_for_last_step(team, "slices", lambda: team.log(file))
        log = team.log(file)
    _check_resumes(log)
    assert logs.differences(log, calm, tolerance(session)) == []
    assert team.status("slices")["restarts"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_preempted_run_resumes_from_its_last_checkpoint(
    session: Session, team: Team, member: Member, undisturbed: _Undisturbed, kind: str
) -> None:
    calm = undisturbed(kind)
    hosts = HOSTS + HEADS[kind]
    team.install(team.hosts(hosts, preemption=True))
    team.make_claim()
    team.submit(team.trainer("patient", kind, priority="low"))
    with member.follow("logs", "patient", "-f", "--raw", "-n", team.name) as file:
        _until_step(team, "patient", lambda: team.log(file).last_step, PERIOD + 10)
        team.submit(team.filler("urgent", hosts, 45, priority="high"))
        # Wait for patient itself: when urgent is seen to run, it can have ended, and patient can be starting again.
        team.becomes("patient", "preempted", "queued", seconds=START)
        team.becomes("urgent", "succeeded", seconds=START)
        team.becomes("patient", "succeeded", seconds=TRAINED)
        wait_for_last_step(team, "patient", lambda: team.log(file))
        log = team.log(file)
    _check_resumes(log)
    assert logs.differences(log, calm, tolerance(session)) == []
    assert team.status("patient")["attempt"] == 1


def _check_resumes(log: logs.Log) -> None:
    """The loop started again, each time from the last complete checkpoint or a later one, and before the last step."""
    assert len(log.starts) > 1, "the loop did not start again"
    for number, resumed in enumerate(log.starts[1:], start=1):
        seen = log.before_start(number)
        # A checkpoint is written during the next steps. It takes fewer than ten of them.
        least = max(0, seen - 10) // PERIOD * PERIOD
        assert least <= resumed < STEPS, f"step {seen} was done, {least} was in a checkpoint, resumed at {resumed}"


def _until_step(team: Team, run: str, read: object, step: int) -> None:
    assert callable(read)
    team.member.wait(
        f"{team.name}/{run} to do step {step}",
        lambda: read() >= step,
        START,
        run=run,
        namespace=team.name,
        seen=lambda: f"step {read()}",
    )


def _host(team: Team, run: str, kind: str) -> str:
    """The name of a pod of the run's second host."""
    mark = {"job-set": "batch.kubernetes.io/job-completion-index", "ray-job": "ray.io/replica-host-index"}[kind]
    return next(
        str(pod["metadata"]["name"]) for pod in team.pods(run) if pod["metadata"]["labels"].get(mark) == str(HOSTS - 1)
    )
