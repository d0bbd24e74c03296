"""A JobSet of the rendered chart in containers of the image: the same training without Ray, one container a host.

Pods are named and indexed as the JobSet and Job controllers do it, and their ends are judged by the manifest's own
rules (containers/jobset.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.image.containers.jobset import JobSet
from tests.image.containers.team import PERIOD, STEPS, Quiet, Team
from tests.trainer.runs import numbers

pytestmark = [pytest.mark.image, pytest.mark.xdist_group("containers")]


@dataclass(frozen=True)
class ToldToEnd:
    """A JobSet one of whose pods was evicted once, to its end."""

    job_set: JobSet
    state: str
    step_when_told: int
    listening: set[int]


@pytest.fixture(scope="module")
def told_to_end(team: Team) -> Iterator[ToldToEnd]:
    job_set = JobSet(team.site, team.render("pods", "job-set"))
    pods = job_set.until_started(1)
    deadline = time.monotonic() + 180
    while team.step("pods") < PERIOD + 5:
        assert time.monotonic() < deadline, job_set.told()
        assert not any(pod.over for pod in pods), job_set.told()
        time.sleep(0.02)
    listening = pods[0].container.listening()
    step = team.step("pods")
    pods[1].delete(disruption=True)
    yield ToldToEnd(job_set, job_set.wait(), step, listening)
    job_set.close()


def test_two_pods_without_ray_train_as_two_workers_under_ray(told_to_end: ToldToEnd, quiet: Quiet, team: Team) -> None:
    assert told_to_end.state == "Completed", told_to_end.job_set.told()
    assert numbers(team.metrics("pods")) == numbers(quiet.metrics)


def test_a_pod_that_is_told_to_end_stops_all_with_a_checkpoint(told_to_end: ToldToEnd, team: Team) -> None:
    first, second = told_to_end.job_set.attempts
    assert [pod.lives[0].exit_code for pod in first] == [3, 3], told_to_end.job_set.told()
    assert [pod.lives[0].exit_code for pod in second] == [0, 0]
    starts = [event["step"] for event in team.events("pods", "loop_started")]
    assert len(starts) == 2
    # Not from the last whole period's checkpoint, which was before that step.
    assert told_to_end.step_when_told < starts[1] < STEPS
    assert f"stopped after {starts[1]} steps" in first[0].log()


def test_the_restart_is_not_counted(told_to_end: ToldToEnd) -> None:
    assert told_to_end.job_set.restarts_counted == 0
    assert told_to_end.job_set.events[-1] == "RestartJobSetAndIgnoreMaxRestarts"
    assert "failed with exit code 3" in told_to_end.job_set.events[0]


def test_the_ports_that_the_chart_names_are_those_that_are_open(told_to_end: ToldToEnd) -> None:
    named = told_to_end.job_set.attempts[0][0].ports
    assert named["coordinator"] == 8476
    assert told_to_end.listening >= set(named.values())


def test_a_config_that_can_never_work_fails_the_job_set(team: Team) -> None:
    job_set = JobSet(team.site, team.render("pods-refused", "job-set", data={"files": ["/data/no-such-text"]}))
    try:
        assert job_set.wait(120) == "Failed", job_set.told()
        (pods,) = job_set.attempts
        assert 2 in [pod.lives[0].exit_code for pod in pods if pod.lives], job_set.told()
        failed = next(pod for pod in pods if pod.lives and pod.lives[0].exit_code == 2)
        # Nearly always the last line of all; but standard error and output are two pipes, whose order nobody keeps.
        said = [line for line in failed.log().splitlines() if line.startswith("Error: ")]
        assert said[-1].startswith("Error: data.files: /data/no-such-text does not exist"), failed.log()
        assert job_set.events[-1] == "FailJobSet"
    finally:
        job_set.close()


def test_a_command_is_every_pods_own_program(team: Team) -> None:
    first = "$(getent hosts ${SLIPWAY_COORDINATOR%:*})"
    say = f'echo "host $JOB_COMPLETION_INDEX of slice $JOB_INDEX as $(id -u), the first is {first}"'
    job_set = JobSet(team.site, team.render("pods-command", "job-set", run={"command": ["sh", "-c", say]}))
    try:
        assert job_set.wait(60) == "Completed", job_set.told()
        (pods,) = job_set.attempts
        for index, pod in enumerate(pods):
            assert pod.log().startswith(f"host {index} of slice 0 as 1000, the first is {pods[0].address}"), pod.log()
    finally:
        job_set.close()
