"""A JobSet of the rendered chart in containers of the image: the same training without Ray, one container per host.

Pods have names and indexes as from the JobSet and Job controllers. The manifest's own failure policies apply
(containers/jobset.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.image.containers.jobset import JobSet
from tests.image.containers.team import PERIOD, STEPS, Team, UndisturbedJob
from tests.trainer.runs import PATIENCE, numbers

KILL_YOUNGEST = """
import os, pathlib
programs = {int(path.parent.name): path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")}
os.kill(max(pid for pid, program in programs.items() if b"\\0trainer\\0--config\\0" in program), 9)
"""


@dataclass(frozen=True)
class EvictedJobSet:
    """A JobSet that has ended after a process that trained was killed in one of its pods, and then the pod evicted."""

    job_set: JobSet
    state: str
    step_when_evicted: int
    listening: set[int]


@pytest.fixture(scope="module")
def evicted(team: Team) -> Iterator[EvictedJobSet]:
    job_set = JobSet(team.context, team.render("pods", "job-set"))
    pods = job_set.until_started(1)

    def until(step: int, starts: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while team.step("pods") < step or len(team.events("pods", "loop_started")) < starts:
            assert time.monotonic() < deadline, job_set.diagnostics()
            assert not any(pod.over for pod in pods), job_set.diagnostics()
            time.sleep(0.02)

    until(PERIOD + 5, 1)
    killed = pods[1].container.execute("python", "-c", KILL_YOUNGEST)
    assert killed.returncode == 0, killed.stderr
    until(PERIOD + 8, 2)
    listening = pods[0].container.listening()
    step = team.step("pods")
    pods[1].delete(disruption=True)
    yield EvictedJobSet(job_set, job_set.wait(), step, listening)
    job_set.close()


def test_two_pods_without_ray_train_as_two_workers_under_ray(
    evicted: EvictedJobSet, undisturbed_job: UndisturbedJob, team: Team
) -> None:
    assert evicted.state == "Completed", evicted.job_set.diagnostics()
    assert numbers(team.metrics("pods")) == numbers(undisturbed_job.metrics)


def test_an_evicted_pod_stops_all_pods_with_a_checkpoint(evicted: EvictedJobSet, team: Team) -> None:
    first, second = evicted.job_set.attempts
    assert [pod.terminations[0].exit_code for pod in first] == [3, 3], evicted.job_set.diagnostics()
    assert [pod.terminations[0].exit_code for pod in second] == [0, 0]
    starts = [event["step"] for event in team.events("pods", "loop_started")]
    assert len(starts) == 3
    # The restart resumes from a checkpoint of the eviction, not from the periodic one, which was before that step.
    assert evicted.step_when_evicted < starts[2] < STEPS
    assert f"stopped after {starts[2]} steps" in first[0].log()


def test_a_killed_process_restarts_in_its_pod(evicted: EvictedJobSet, team: Team) -> None:
    """All pods stay: none was created again, and no container was started again."""
    (event,) = team.events("pods", "worker_failed")
    assert event["message"].startswith("worker 1 was killed by signal 9 (SIGKILL); resuming from step ")
    assert [pod.restarts for pod in evicted.job_set.attempts[0]] == [0, 0]


def test_the_restart_is_not_counted(evicted: EvictedJobSet) -> None:
    assert evicted.job_set.restarts_counted == 0
    assert evicted.job_set.events[-1] == "RestartJobSetAndIgnoreMaxRestarts"
    assert "failed with exit code 3" in evicted.job_set.events[0]


def test_the_ports_that_the_chart_names_are_those_that_are_open(evicted: EvictedJobSet) -> None:
    named = evicted.job_set.attempts[0][0].ports
    assert named["coordinator"] == 8476
    assert evicted.listening >= set(named.values())


@dataclass(frozen=True)
class SlicesRestarted:
    """A JobSet of two slices of one host that has ended, after its slices were restarted alone.

    First the pod of slice 1 was killed, then that of slice 0, whose host is JAX's coordinator, and at last the new pod
    of slice 1 was evicted.
    """

    job_set: JobSet
    state: str


@pytest.fixture(scope="module")
def slices(team: Team) -> Iterator[SlicesRestarted]:
    name = "pods-slices"
    values = {"slice": {"accelerator": "cpu", "hosts": 1, "count": 2}}
    run = {"name": name, "kind": "job-set", "restartAction": "RestartJob", "maxRestarts": 2, "graceSeconds": 60}
    job_set = JobSet(team.context, team.render(name, "job-set", run=run, **values))
    first, second = job_set.until_started(1)

    def until(step: int, starts: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while team.step(name) < step or len(team.events(name, "loop_started")) < starts:
            assert time.monotonic() < deadline, job_set.diagnostics()
            assert not job_set.state, job_set.diagnostics()
            time.sleep(0.02)

    until(PERIOD + 5, 1)
    second.delete(grace=0)
    (second,) = job_set.until_started(2)
    until(2 * PERIOD + 5, 2)
    first.delete(grace=0)
    job_set.until_started(3)
    until(3 * PERIOD + 5, 3)
    second.delete(disruption=True)
    yield SlicesRestarted(job_set, job_set.wait())
    job_set.close()


def test_restart_job_creates_only_the_pods_of_the_failed_slice_again(slices: SlicesRestarted) -> None:
    assert slices.state == "Completed", slices.job_set.diagnostics()
    (first, second), (killed,), (coordinator,), (evicted,) = slices.job_set.attempts
    assert [pod.name.rsplit("-", 1)[0] for pod in (first, second, killed, coordinator, evicted)] == [
        *("pods-slices-slice-0-0", "pods-slices-slice-1-0", "pods-slices-slice-1-0"),
        *("pods-slices-slice-0-0", "pods-slices-slice-1-0"),
    ]
    # The pod of slice 0 stayed when slice 1 failed, and the second one of slice 1 when slice 0 did, until its eviction.
    assert [pod.terminations[0].exit_code for pod in (first, second, killed, coordinator, evicted)] == [
        137,
        137,
        3,
        0,
        0,
    ]
    assert [pod.restarts for pod in (first, second, killed, coordinator, evicted)] == [0] * 5


def test_the_run_resumes_from_a_checkpoint_each_time(
    slices: SlicesRestarted, undisturbed_job: UndisturbedJob, team: Team
) -> None:
    starts = [event["step"] for event in team.events("pods-slices", "loop_started")]
    assert len(starts) == 4, slices.job_set.diagnostics()
    assert (starts[0], starts[1] % PERIOD, starts[2] % PERIOD) == (0, 1, 1)  # the checkpoints after the steps 40 and 80
    assert starts[0] < starts[1] < starts[2] < starts[3] < STEPS
    assert numbers(team.metrics("pods-slices")) == numbers(undisturbed_job.metrics)


def test_only_failures_of_slices_count_as_restarts(slices: SlicesRestarted) -> None:
    assert [event for event in slices.job_set.events if "RestartJob" in event] == [
        *("RestartJob", "RestartJob", "RestartJobAndIgnoreMaxRestarts"),
    ], slices.job_set.events
    assert (slices.job_set.restarts_counted, slices.job_set.job_restarts) == (2, [1, 2])


def test_a_config_that_can_never_work_fails_the_job_set(team: Team) -> None:
    job_set = JobSet(team.context, team.render("pods-refused", "job-set", data={"files": ["/data/no-such-text"]}))
    try:
        assert job_set.wait() == "Failed", job_set.diagnostics()
        (pods,) = job_set.attempts
        assert 2 in [pod.terminations[0].exit_code for pod in pods if pod.terminations], job_set.diagnostics()
        failed = next(pod for pod in pods if pod.terminations and pod.terminations[0].exit_code == 2)
        # Not always the last line, or at the start of one: stderr and stdout are two pipes, whose order is not defined.
        assert "Error: data.files: /data/no-such-text does not exist" in failed.log(), job_set.diagnostics()
        assert job_set.events[-1] == "FailJobSet"
    finally:
        job_set.close()


def test_a_command_is_every_pods_own_program(team: Team) -> None:
    first = "$(getent hosts ${SLIPWAY_COORDINATOR%:*})"
    say = f'echo "host $JOB_COMPLETION_INDEX of slice $JOB_INDEX as $(id -u), the first is {first}"'
    job_set = JobSet(team.context, team.render("pods-command", "job-set", run={"command": ["sh", "-c", say]}))
    try:
        assert job_set.wait() == "Completed", job_set.diagnostics()
        (pods,) = job_set.attempts
        for index, pod in enumerate(pods):
            assert pod.log().startswith(f"host {index} of slice 0 as 1000, the first is {pods[0].address}"), pod.log()
    finally:
        job_set.close()
