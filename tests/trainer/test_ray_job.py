"""The trainer as a RayJob's driver: started through Ray's Jobs API by the entrypoint that the chart renders.

KubeRay itself is not available here. It uses the Ray job's status: with the chart's backoffLimit of 0, a FAILED job is
the end of the RayJob, which keeps the job's message (the recording rayjob-fails).
"""

from __future__ import annotations

import errno
import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayTaskError

from tests.trainer.ray_jobs import Job, events, run_hook, steps, wait
from tests.trainer.ray_nodes import RayNodes
from tests.trainer.runs import TrainingHarness, with_run
from trainer.config import read
from trainer.errors import ConfigError
from trainer.metrics import now
from trainer.user_command import failure_of


def test_a_rejected_config_fails_the_job_without_a_restart(
    lab: TrainingHarness, cluster: RayNodes, rendered: dict[str, Any]
) -> None:
    """The trainer rejects the config before it requests hosts. tests/cli/test_training.py covers MaxText's rejections
    on the hosts."""
    data = {"files": ["/data/no-such-text"]}
    job = Job(cluster, rendered, lab.config("rj-refused", data=data), "refused")
    assert job.end() == "FAILED", job.log()[-3000:]
    assert job.reason().startswith("data.files: /data/no-such-text does not exist")
    assert f"Error: {job.reason()}" in job.pod_log().splitlines()
    assert "restarts are left" not in job.log()
    assert rendered["backoffLimit"] == 0


def test_the_command_runs_on_every_host(lab: TrainingHarness, cluster: RayNodes, rendered: dict[str, Any]) -> None:
    """Each host has its own node, although one node has the CPUs of two hosts. The variables that Ray sets for its own
    tasks are not set."""
    script = (
        'echo "host $SLIPWAY_HOST_INDEX of $SLIPWAY_HOSTS ${OMP_NUM_THREADS-} ${PYTHONBREAKPOINT-}."; '
        f'echo "$RAY_RAYLET_PID" > {lab.root}/raylet-$SLIPWAY_HOST_INDEX; printf "last\\nwords"'
    )
    config = with_run(lab.config("rj-command"), command=["sh", "-c", script])
    job = Job(cluster, rendered, config, "command")
    assert job.end() == "SUCCEEDED", job.log()[-3000:]
    lines = job.log().splitlines()
    assert {f"(host {index}) host {index} of 2  ." for index in (0, 1)} <= set(lines), lines
    assert {f"(host {index}) {word}" for index in (0, 1) for word in ("last", "words")} <= set(lines), lines
    assert (lab.root / "raylet-0").read_text() != (lab.root / "raylet-1").read_text()


def test_the_command_has_the_environment_of_the_values(
    lab: TrainingHarness, cluster: RayNodes, rendered: dict[str, Any]
) -> None:
    config = with_run(lab.config("rj-environment"), command=["sh", "-c", 'echo "$OMP_NUM_THREADS $LEVEL"'])
    config.write_text(
        json.dumps({**json.loads(config.read_text()), "worker": {"env": {"OMP_NUM_THREADS": 3, "LEVEL": "a"}}})
    )
    job = Job(cluster, rendered, config, "environment")
    assert job.end() == "SUCCEEDED", job.log()[-3000:]
    assert {"(host 0) 3 a", "(host 1) 3 a"} <= set(job.log().splitlines())


def test_a_command_ends_although_a_child_keeps_its_output_open(
    lab: TrainingHarness, cluster: RayNodes, rendered: dict[str, Any]
) -> None:
    script = f"sleep 25 & date +%s.%N > {lab.root}/ended-$SLIPWAY_HOST_INDEX; exit 7"
    config = with_run(lab.config("rj-background"), command=["sh", "-c", script], maxRestarts=0)
    job = Job(cluster, rendered, config, "background")
    wait(job, lambda: "ended with exit code 7." in job.log())
    logged = time.time()
    host = job.log().partition(" ended with exit code 7.")[0][-1]  # the first to end
    assert logged - float((lab.root / f"ended-{host}").read_text()) < 5
    assert job.end() == "FAILED", job.log()[-3000:]
    assert job.reason().endswith("ended with exit code 7.")


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (RayTaskError("run", "", OSError(errno.ESTALE, "Stale file handle")), "cannot be started: Stale file handle."),
        (RayTaskError("run", "", MemoryError("no room")), "Host 1 was lost (MemoryError: no room)."),
        (OutOfMemoryError("killed\nby Ray"), "Host 1 was lost (OutOfMemoryError: killed)."),
        (ActorUnavailableError("gone", None), "Host 1 was lost."),
        (7, "The command on host 1 ended with exit code 7."),
    ],
)
def test_an_error_that_a_restart_may_fix_is_a_failure_of_its_host(
    lab: TrainingHarness, end: Any, sentence: str
) -> None:
    failure = failure_of(read(with_run(lab.config("rj-fixable"), command=["program"])), 1, end)
    assert failure is not None
    assert "1" in failure
    assert failure.endswith(sentence)


def test_an_error_that_is_not_a_failure_of_a_host_is_raised(lab: TrainingHarness) -> None:
    config = read(with_run(lab.config("rj-raised"), command=["program"]))
    with pytest.raises(ConfigError, match="cannot be started: Permission denied"):
        failure_of(config, 1, RayTaskError("run", "", PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(ValueError, match="unknown"):
        failure_of(config, 1, ValueError("unknown"))


def test_a_check_of_a_command_needs_no_data(lab: TrainingHarness) -> None:
    run = lab.train(with_run(lab.config("rj-checked"), command=["no-such-program"]), "--check")
    assert (run.process.returncode, run.output()) == (0, "{}\n")


def test_a_command_that_fails_restarts_up_to_the_limit(
    lab: TrainingHarness, cluster: RayNodes, rendered: dict[str, Any], tmp_path: Path
) -> None:
    seconds = f"300.{secrets.randbelow(10**9)}"  # distinguishes it from the processes of other test runs
    script = f'[ "$SLIPWAY_HOST_INDEX" = 1 ] && exec sleep {seconds}; echo x >> {tmp_path}/starts; sleep 1; exit 2'
    config = with_run(lab.config("rj-fails"), command=["sh", "-c", script], maxRestarts=1)
    job = Job(cluster, rendered, config, "fails")
    assert job.end() == "FAILED", job.log()[-3000:]
    assert (tmp_path / "starts").read_text() == "x\nx\n"
    assert job.reason() == "The command on host 0 ended with exit code 2."
    assert [event["event"] for event in events(job.pod_log())] == [
        *("command_started", "worker_failed", "command_started", "error")
    ]
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", seconds]]


def test_a_command_that_does_not_exist_is_a_config_error(
    lab: TrainingHarness, cluster: RayNodes, rendered: dict[str, Any]
) -> None:
    config = with_run(lab.config("rj-absent"), command=["no-such-program"])
    job = Job(cluster, rendered, config, "absent")
    assert job.end() == "FAILED", job.log()[-3000:]
    assert job.reason() == 'run.command: the program "no-such-program" cannot be started: No such file or directory.'


def test_a_killed_driver_restarts_in_the_same_job(
    lab: TrainingHarness, cluster: RayNodes, rendered: dict[str, Any], tmp_path: Path
) -> None:
    """The kernel kills a driver if the head is short of memory. The hosts' programs end and start with their driver."""
    script = f"echo x >> {tmp_path}/starts-$SLIPWAY_HOST_INDEX; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    config = with_run(lab.config("rj-killed"), command=["sh", "-c", script], maxRestarts=1)
    job = Job(cluster, rendered, config, "killed")
    starts = [tmp_path / f"starts-{index}" for index in (0, 1)]
    wait(job, lambda: all(path.exists() for path in starts))
    (driver,) = (
        each
        for each in psutil.process_iter(["cmdline"])
        # psutil returns no command line for a zombie.
        if str(config) in (each.info["cmdline"] or ()) and (above := each.parent()) and str(config) in above.cmdline()
    )
    driver.kill()
    (tmp_path / "go").touch()
    assert job.end() == "SUCCEEDED", job.log()[-3000:]
    assert [path.read_text() for path in starts] == ["x\nx\n"] * 2
    (event,) = (event for event in events(job.pod_log()) if event["event"] == "driver_failed")
    assert (event["message"], event["restarts_left"]) == ("The driver was ended by SIGKILL.", 0)


JOINED = """
import os, pathlib, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the hook sends it
index, here = os.environ["SLIPWAY_HOST_INDEX"], pathlib.Path(sys.argv[1])
if (here / f"started-{index}").exists():
    sys.exit(0)
(here / f"started-{index}").write_text(str(os.getpid()))
port = here / "port"
if index == "0":
    listener = socket.create_server(("127.0.0.1", 0))
    (here / "draft").write_text(str(listener.getsockname()[1]))
    (here / "draft").rename(port)
    other = listener.accept()[0]
else:
    while not port.exists():
        time.sleep(0.05)
    other = socket.create_connection(("127.0.0.1", int(port.read_text())))
(here / f"joined-{index}").touch()
other.recv(1)
sys.exit("the other host is gone")
"""


def test_the_loss_of_a_draining_host_is_not_a_failure_of_the_other(
    lab: TrainingHarness, cluster: RayNodes, rendered: dict[str, Any], tmp_path: Path
) -> None:
    """No restart is allowed. The program of the remaining host ends first, before Ray detects the lost node."""
    (tmp_path / "joined.py").write_text(JOINED)
    command = [sys.executable, str(tmp_path / "joined.py"), str(tmp_path)]
    config = with_run(lab.config("rj-joined"), command=command, maxRestarts=0)
    job = Job(cluster, rendered, config, "joined")
    wait(job, lambda: all((tmp_path / f"joined-{index}").exists() for index in (0, 1)))
    node = cluster.nodes[-1]
    hook = run_hook(cluster, node, rendered, lab.root)
    wait(job, lambda: psutil.Process(hook.pid).children())
    wait(job, lambda: not psutil.Process(hook.pid).children())  # Ray has been notified
    (program,) = (each for each in psutil.Process(node.pid).children(recursive=True) if each.cmdline() == command)
    host = program.parent()
    assert host is not None
    host.suspend()  # so that it cannot report the end of its program
    program.kill()
    wait(job, lambda: "The command restarts" in job.log())
    cluster.kill(node)
    assert hook.wait(60) == 0  # no process is left to wait for
    cluster.add()
    assert job.end() == "SUCCEEDED", job.log()[-3000:]
    assert "the other host is gone" in job.log()


def test_a_lost_host_is_a_failure_and_the_last_one_fails_the_job(
    lab: TrainingHarness, cluster: RayNodes, rendered: dict[str, Any]
) -> None:
    config = with_run(lab.config("rj-lost"), maxRestarts=0)
    began = now()
    job = Job(cluster, rendered, config, "lost")
    wait(job, lambda: steps(lab.root / "rj-lost") >= 2)
    cluster.kill(cluster.nodes[-1])
    cluster.add()
    assert job.end() == "FAILED", job.log()[-3000:]
    assert "no restart was left" in job.reason()
    assert "The driver restarts" not in job.log()
    # A node that joins prints all logs in the folder that nodes of one machine share, including those of earlier jobs.
    logged = [event for event in events(job.pod_log()) if event["time"] >= began and event["event"] != "phase"]
    # The remaining host may fail too, because it loses the other one.
    assert [event["event"] for event in logged] == ["loop_started", *["worker_failed"] * (len(logged) - 2), "error"]
    assert logged[1]["message"].startswith("worker ")
    assert logged[-1]["message"] == job.reason()
