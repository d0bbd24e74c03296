"""A RayJob of the rendered chart in containers of the image: head and hosts in separate networks, with tokens.

Commands, variables, mounts, users, probes and hooks are the chart's. The fields that KubeRay adds are from its recorded
pods (containers/kuberay.py is the fake that replaces it). All runs read the same text from the same storage.
"""

from __future__ import annotations

import datetime
import json
import re
import signal
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.image.containers.kuberay import RayJob
from tests.image.containers.pod import Pod
from tests.image.containers.team import MAX_RESTARTS, PERIOD, STEPS, Team, UndisturbedJob
from tests.trainer.runs import numbers


def test_a_ray_job_trains_on_real_text_and_succeeds(undisturbed_job: UndisturbedJob, team: Team) -> None:
    assert undisturbed_job.status == "SUCCEEDED", undisturbed_job.job.diagnostics()
    losses = [line["loss"] for line in undisturbed_job.metrics if "loss" in line]
    held_out = [line["eval_loss"] for line in undisturbed_job.metrics if "eval_loss" in line]
    assert len(losses) == STEPS
    assert losses[-1] < losses[0] - 0.3
    assert held_out[-1] < held_out[0] - 0.3
    kept = {int(path.name) for path in (team.storage / "undisturbed/checkpoints").iterdir()}
    assert kept == {0, *range(PERIOD, STEPS, PERIOD), STEPS - 1}
    # No process in a container is root. The group of all runs can read and remove a run's files.
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in (team.storage / "undisturbed").rglob("*")}
    assert owners == {(1000, 1000)}


def test_the_heads_log_shows_all_that_the_job_prints(undisturbed_job: UndisturbedJob) -> None:
    """SLIPWAY_POD_LOG is /proc/1/fd/1, the pipe of the container's first process. The container's user can open it."""
    printed = [line for line in undisturbed_job.job.head.log().splitlines() if "SLIPWAY_METRICS {" in line]
    assert len(printed) == len(undisturbed_job.metrics)
    assert "cannot be written" not in undisturbed_job.job.log()


def test_the_probes_succeeded_and_no_container_was_restarted(undisturbed_job: UndisturbedJob) -> None:
    for pod in (undisturbed_job.job.head, *undisturbed_job.job.workers):
        assert pod.ready
        assert pod.restarts == 0
        assert pod.events == []


def test_containers_have_the_security_settings_of_the_chart(undisturbed_job: UndisturbedJob) -> None:
    for pod in (undisturbed_job.job.head, *undisturbed_job.job.workers):
        state = process_state(pod)
        assert state["Uid"].split() == state["Gid"].split() == ["1000"] * 4
        assert int(state["CapEff"], 16) == int(state["CapPrm"], 16) == int(state["CapBnd"], 16) == 0
        assert state["NoNewPrivs"] == "1"
        assert state["Seccomp"] == "2"
        # A new user namespace, which gives access to most of the kernel's attack surface; a mount; root by setuid.
        for forbidden in (
            ["unshare", "--user", "true"],
            ["mount", "-t", "tmpfs", "none", "/tmp"],
            ["su", "-c", "true"],
        ):
            done = pod.container.execute(*forbidden)
            assert done.returncode != 0, forbidden
        # The image's files cannot be changed, because root owns them.
        for place in ("/", "/etc", "/usr/bin", "/opt", "/etc/slipway"):
            assert pod.container.execute("touch", f"{place}/x").returncode != 0, place
        # The container has the pod's memory limit.
        limit = pod.manifest["spec"]["containers"][0]["resources"]["limits"]["memory"]
        assert pod.container.memory("limit_in_bytes") == int(limit.removesuffix("Gi")) << 30
        assert pod.container.memory("failcnt") == 0


def test_the_run_config_and_shared_memory_are_where_the_chart_mounts_them(undisturbed_job: UndisturbedJob) -> None:
    worker = undisturbed_job.job.workers[0]
    config = json.loads(worker.container.execute("cat", "/etc/slipway/run.json").stdout)
    assert config["run"]["name"] == "undisturbed"
    size = worker.container.execute("df", "--output=size", "--block-size=1G", "/dev/shm").stdout
    assert size.split()[-1] == "3"
    kinds = worker.container.execute("findmnt", "--noheadings", "--output=FSTYPE", "/dev/shm").stdout
    assert kinds.strip() == "tmpfs"


def test_the_dashboard_requires_the_token(undisturbed_job: UndisturbedJob) -> None:
    for path in ("/api/jobs/", f"/api/jobs/{undisturbed_job.job.job}/logs", "/api/v0/nodes", "/nodes?view=summary"):
        assert undisturbed_job.job.request(path, token="").status == 401, path
        assert undisturbed_job.job.request(path, token="another-token-of-32-characters-00").status in (401, 403), path
        assert undisturbed_job.job.request(path).status == 200, path
    # The health endpoint does not, because a kubelet has no token.
    assert undisturbed_job.job.request("/api/gcs_healthz", token="").status == 200


def test_the_ports_that_the_chart_names_for_the_head_are_open(undisturbed_job: UndisturbedJob) -> None:
    named = undisturbed_job.job.head.ports
    assert {named["gcs-server"], named["dashboard"], named["client"]} == {6379, 8265, 10001}
    assert undisturbed_job.job.head.container.listening() >= set(named.values())


@dataclass(frozen=True)
class Disturbed:
    """A RayJob of which one container was killed, later another pod was deleted with a grace period, and in the end all
    pods at once."""

    job: RayJob
    killed: Pod
    killed_at: float
    step_when_killed: int
    first_container_started: float
    deleted: tuple[Pod, ...]
    step_when_deleted: int
    listening: set[int]
    all_deleted: tuple[Pod, ...]
    step_when_all_deleted: int


@pytest.fixture(scope="module")
def disturbed(team: Team, undisturbed_job: UndisturbedJob) -> Iterator[Disturbed]:
    """Runs after `undisturbed_job`, whose compiled programs are then in the cache, so each start here is warm."""
    job = RayJob(team.context, team.render("disturbed", "ray-job"))
    job.wait_ready()
    job.submit()
    started = min(pod.container.started for pod in job.workers)

    def until(step: int, starts: int) -> None:
        def reached() -> bool:
            assert job.status() not in ("SUCCEEDED", "FAILED"), job.diagnostics()
            started = len(team.events("disturbed", "loop_started")) >= starts
            return started and team.step("disturbed") >= step

        job.until(reached)

    until(PERIOD + 5, 1)
    killed = job.workers[1]
    listening = job.workers[0].container.listening()
    at, step = time.time(), team.step("disturbed")
    killed.container.signal(signal.SIGKILL)
    until(step + 5, 2)
    step_when_deleted = team.step("disturbed")
    before = tuple(job.workers)
    before[0].delete(disruption=True)
    until(step_when_deleted, 3)
    until(team.events("disturbed", "loop_started")[-1]["step"] + 5, 3)
    last, step_when_all_deleted = (job.head, *job.workers), team.step("disturbed")
    took = job.shut_down()
    print(f"all pods of a training cluster had ended after {took:.1f} s")
    yield Disturbed(job, killed, at, step, started, before, step_when_deleted, listening, last, step_when_all_deleted)
    job.close()


def test_a_killed_and_a_deleted_worker_change_no_number(
    disturbed: Disturbed, undisturbed_job: UndisturbedJob, team: Team
) -> None:
    done = numbers(team.metrics("disturbed"))
    assert len(done) > disturbed.step_when_all_deleted
    assert done == numbers(undisturbed_job.metrics)[: len(done)]


def test_the_kubelet_started_the_killed_container_again(disturbed: Disturbed, team: Team) -> None:
    assert disturbed.killed.terminations[0].exit_code == 128 + signal.SIGKILL
    assert disturbed.killed.restarts == 1
    starts = [event["step"] for event in team.events("disturbed", "loop_started")]
    assert len(starts) == 3
    assert starts[1] == last_checkpoint_before(disturbed.step_when_killed) + 1


def test_a_run_recovers_within_a_checkpoint_period_and_a_warm_start(
    disturbed: Disturbed, team: Team, record_testsuite_property: Any
) -> None:
    steps = [line for line in team.metrics("disturbed") if "loss" in line]
    begun = team.events("disturbed", "loop_started")
    warm_start = seconds(steps[0]["time"]) - disturbed.first_container_started
    period = PERIOD * statistics.median(line["step_seconds"] for line in steps)
    # The time from the kill to the first step that was not done before.
    again = next(line for line in steps if line["step"] == disturbed.step_when_killed + 1)
    recovery = seconds(again["time"]) - disturbed.killed_at
    print(
        f"recovery {recovery:.1f} s (the loop began after {seconds(begun[1]['time']) - disturbed.killed_at:.1f} s); "
        f"a checkpoint period is {period:.1f} s, a warm start of a cluster {warm_start:.1f} s"
    )
    record_testsuite_property("recovery_seconds", round(recovery, 1))
    assert recovery < period + warm_start


def test_a_deleted_pod_writes_a_checkpoint_and_does_not_count_as_a_restart(disturbed: Disturbed, team: Team) -> None:
    """maxRestarts is 1, and the kill was that restart. KubeRay also deletes the other pod of the slice."""
    assert MAX_RESTARTS == 1
    assert all(pod.over for pod in disturbed.deleted)
    assert {pod.name for pod in disturbed.job.workers}.isdisjoint(pod.name for pod in disturbed.deleted)
    # No SIGKILL was necessary: the hook and SIGTERM together took less than the grace period.
    assert not any("killed" in event for pod in disturbed.deleted for event in pod.events), disturbed.deleted[0].events
    last = team.events("disturbed", "loop_started")[-1]["step"]
    assert last > disturbed.step_when_deleted
    assert [event["step"] for event in team.events("disturbed", "preempted")][:-1] == [last]


def test_the_ports_that_the_chart_names_for_a_host_are_open_while_it_trains(disturbed: Disturbed) -> None:
    assert disturbed.listening >= set(disturbed.job.workers[0].ports.values())
    assert "train-metrics" in disturbed.job.workers[0].ports


def test_a_deleted_cluster_leaves_a_checkpoint(disturbed: Disturbed, team: Team) -> None:
    """Kueue's preemption deletes the head and the hosts at once."""
    assert "did not finish draining" not in disturbed.job.diagnostics()
    assert not any("killed" in event for pod in disturbed.all_deleted for event in pod.events), (
        disturbed.job.diagnostics()
    )
    ended = team.events("disturbed", "preempted")[-1]
    message = r"The run received a stop signal: training stopped after (\d+) steps\."
    stopped = re.fullmatch(message, ended["message"])
    assert stopped, disturbed.job.diagnostics()
    assert disturbed.step_when_all_deleted < int(stopped[1]) < STEPS
    assert (team.storage / f"disturbed/checkpoints/{int(stopped[1]) - 1}").is_dir()


def test_a_command_runs_on_every_host(team: Team) -> None:
    say = 'echo "host $SLIPWAY_HOST_INDEX of $SLIPWAY_HOSTS on $(hostname) as $(id -u) with $LEVEL"; df /data | tail -1'
    manifest = team.render("command", "ray-job", run={"command": ["sh", "-c", say]}, worker={"env": {"LEVEL": "3"}})
    job = RayJob(team.context, manifest)
    try:
        assert job.run() == "SUCCEEDED", job.diagnostics()
        log = job.log()
        on = {
            f"(host {index}) host {index} of 2 on {pod.name} as 1000 with 3" for index in (0, 1) for pod in job.workers
        }
        assert len(on & set(log.splitlines())) == 2, log
        assert all(pod.name in log for pod in job.workers)
    finally:
        job.close()


def process_state(pod: Pod) -> dict[str, str]:
    """The fields of /proc/1/status of the container."""
    text = pod.container.execute("cat", "/proc/1/status").stdout
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def last_checkpoint_before(step: int) -> int:
    return step // PERIOD * PERIOD


def seconds(time_: str) -> float:
    return datetime.datetime.fromisoformat(time_).timestamp()
