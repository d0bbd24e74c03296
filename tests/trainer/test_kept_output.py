"""The output of a run in its folder, with storage that is slow, full or hung, and after kills of real trainings."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.products.records.stored_logs import StoredLogs
from tests.prerequisites import require
from tests.slow_storage import can_mount, slow_storage
from tests.trainer.ray_jobs import Job, steps, wait
from tests.trainer.ray_nodes import RayNodes
from tests.trainer.runs import CHECKOUT, ONE_HOST, TrainingHarness
from tests.trainer.runs import steps as steps_of

PROGRAM = """
import sys, time
from trainer.log_keeper import Pipe, Settings
pipe = Pipe(Settings(sys.argv[1] + "/1", "driver", 1 << 20, 0.1))
slowest = 0.0
for number in range(400):
    began = time.monotonic()
    pipe.write(b"line %d\\n" % number)
    slowest = max(slowest, time.monotonic() - began)
    time.sleep(0.01)
began = time.monotonic()
pipe.close()
print(slowest, time.monotonic() - began)
"""


def run_program(logs: Path, during: Callable[[], None] = lambda: None) -> tuple[float, float, str]:
    """Return the longest write and the time for the end in seconds, and what the keeping process printed."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(logs)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    during()
    # The keeping process has stderr open, and it may hang.
    assert program.stdout is not None
    assert program.stderr is not None
    with program.stdout, program.stderr:
        slowest, end = map(float, program.stdout.readline().split())
        assert program.wait(5) == 0
        return slowest, end, program.stderr.readline()


def kept(folder: Path, attempt: int = 1, worker: int | None = None, excerpt: Excerpt = WHOLE) -> list[str]:
    return list(StoredLogs(str(folder)).excerpt(attempt, worker, excerpt))


def with_logs(config: Path, kind: str, **logs: Any) -> Path:
    """Make a run of this machine a run of a cluster that keeps its output."""
    tree = json.loads(config.read_text())
    tree["run"]["kind"] = kind
    tree["storage"] |= {"kind": "pvc", "logs": {"size": "1Mi", "seconds": 1, **logs}}
    config.write_text(json.dumps(tree))
    return config


def test_storage_that_is_slow_or_full_delays_no_line_and_gets_all(tmp_path: Path) -> None:
    require(can_mount(), "The test mounts a file system (FUSE). Run it as root on Linux.")
    (tmp_path / "run").mkdir()
    with slow_storage(tmp_path / "run" / "logs") as storage:
        storage.seconds = 0.5
        slowest, end, _ = run_program(storage.path)
        assert (slowest < 0.3, end < 12) == (True, True)
        storage.seconds, storage.error = 0, errno.ENOSPC

        def enlarge() -> None:
            time.sleep(2)
            storage.error = 0

        *times, message = run_program(storage.path, enlarge)
        assert times[0] < 0.3
        assert message == (
            f"The output cannot be written to {storage.path}/1: No space left on device. The run continues.\n"
        )
        assert kept(tmp_path / "run") == [f"line {number}" for number in range(400)] * 2


def test_storage_that_hangs_delays_no_line_and_no_end(tmp_path: Path) -> None:
    """The process that waits in the kernel is not the program, so that the program can end."""
    require(can_mount(), "The test mounts a file system (FUSE). Run it as root on Linux.")
    (tmp_path / "run").mkdir()
    with slow_storage(tmp_path / "run" / "logs") as storage:
        storage.answers.clear()
        slowest, end, message = run_program(storage.path)
        assert (slowest < 0.3, end < 15) == (True, True)
        assert message == (f"400 lines of output are not in {storage.path}/1: storage did not take them in time.\n")


def test_a_training_ends_with_the_same_numbers_although_its_log_hangs(
    lab: TrainingHarness, undisturbed_host: Any
) -> None:
    require(can_mount(), "The test mounts a file system (FUSE). Run it as root on Linux.")
    config = with_logs(lab.config("hung-log", hosts=1, **{**ONE_HOST, "steps": 6}), "job-set")
    (lab.root / "hung-log").mkdir()
    with slow_storage(lab.root / "hung-log" / "logs") as storage:
        storage.answers.clear()
        run = lab.start(config, "--no-ray")
        run.until(lambda: run.step() == 5)
        assert run.wait(60) == 0, run.output()[-3000:]
    assert steps_of(run) == steps_of(undisturbed_host)[:6]


def test_the_output_of_a_host_without_ray_stays_after_a_kill(lab: TrainingHarness) -> None:
    config = with_logs(lab.config("host-log", hosts=1, **ONE_HOST), "job-set")
    run = lab.start(config, "--no-ray", SLIPWAY_ATTEMPT="3")
    run.until(lambda: run.step() >= 3)
    (child, *_) = run.descendants("trainer")
    child.kill()
    assert run.wait(30) == 128 + 9
    lines = [line for line in run.output().splitlines() if line]
    assert [line for line in kept(run.folder, 3) if line] == lines
    assert any(line.startswith("step 3/60") for line in kept(run.folder, 3))
    assert kept(run.folder, 3, worker=0, excerpt=Excerpt(tail=1)) == [run.output().splitlines()[-1]]


def test_the_output_of_a_ray_job_stays_after_a_kill(
    lab: TrainingHarness, cluster: RayNodes, rendered: dict[str, Any]
) -> None:
    """The driver's output has that of all workers, before and after the kill, and each worker has its own."""
    config = with_logs(lab.config("ray-log", steps=12, eval_interval=None), "ray-job")
    folder = lab.root / "ray-log"
    job = Job(cluster, rendered, config, "ray-log")
    wait(job, lambda: steps(folder) >= 5)
    workers = [
        process
        for node in cluster.nodes
        for process in psutil.Process(node.pid).children(recursive=True)
        if "RayTrainWorker" in " ".join(process.cmdline())
    ]
    victim = workers[0]
    victim.kill()
    assert job.end() == "SUCCEEDED", job.log()[-3000:]
    stored = StoredLogs(str(folder))
    assert stored.sources(1) == ["driver", "host-0", "host-1"]
    driver = kept(folder)
    # Ray's own lines are before those of the driver.
    assert job.log().splitlines()[-len(driver) :] == driver
    assert sum('"event": "worker_failed"' in line for line in driver) >= 1
    first = kept(folder, worker=0)
    assert sum('"event": "loop_started"' in line for line in first) == 2
    assert any(line.startswith("step 12/12") for line in first)
    assert not any(line.startswith("step ") for line in kept(folder, worker=1))
