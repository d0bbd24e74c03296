"""The process between a Ray job and its driver, with real processes. The drivers here are a few lines each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.trainer.runs import CHECKOUT

SUPERVISED = """
import os, pathlib, signal, sys, time
from trainer import driver_supervisor, pod_log
driver_supervisor._LONGEST_PAUSE = 0.2
pod_log._SECONDS_TO_TAKE_A_LINE = 0.2
code = driver_supervisor.supervise(lambda: int(sys.argv[2]))
if code is None:
    life = len(os.listdir(sys.argv[1]))
    (pathlib.Path(sys.argv[1]) / str(life)).touch()
    {driver}
sys.exit(code)
"""


class Job:
    def __init__(self, folder: Path, driver: str, *, restarts: int = 0, pod_log: str | None = None) -> None:
        self.lives = folder / "lives"
        self.lives.mkdir()
        self.pod_log = folder / "pod.log"
        self.pod_log.touch()
        self.log = folder / "job.log"
        environment = {**os.environ, "SLIPWAY_POD_LOG": pod_log if pod_log is not None else str(self.pod_log)}
        script = SUPERVISED.replace("{driver}", driver.replace("\n", "\n    "))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script, str(self.lives), str(restarts)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=CHECKOUT,
                start_new_session=True,  # as Ray starts a job
            )

    def end(self) -> int:
        return self.process.wait(30)

    def output(self) -> list[str]:
        return self.log.read_text().splitlines()

    def until(self, text: str) -> None:
        deadline = time.monotonic() + 20
        while text not in self.log.read_text():
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.02)


def test_the_output_of_a_driver_is_in_both_logs(tmp_path: Path) -> None:
    """Both logs have stdout and stderr in their order, and a last line without a line ending."""
    job = Job(
        tmp_path, """print("one", flush=True); print("two", file=sys.stderr); os.write(1, b"last words"); sys.exit(0)"""
    )
    assert job.end() == 0
    assert job.output() == ["one", "two", "last words"]
    assert job.pod_log.read_text() == "one\ntwo\nlast words\n"


def test_much_output_right_before_a_kill_is_in_both_logs(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        """for n in range(3000): os.write(1, b"%d %s\\n" % (n, b"x" * 90))
os.kill(os.getpid(), signal.SIGKILL)""",
    )
    assert job.end() == 128 + signal.SIGKILL
    assert [line.split()[0] for line in job.output()[:3000]] == [str(n) for n in range(3000)]
    assert job.pod_log.read_text() == job.log.read_text()
    assert job.output()[-1] == "Error: The driver was ended by SIGKILL."


@pytest.mark.parametrize(
    ("driver", "code", "lives", "last"),
    [
        ("print('Error: no such key', flush=True); os._exit(2)", 2, 1, "Error: no such key"),
        (
            "print('Error: gave up'); print('and so on', flush=True); os._exit(driver_supervisor.GAVE_UP)",
            1,
            1,
            "Error: gave up",
        ),
        ("print('Error: no disk', flush=True); os._exit(1)", 1, 3, "Error: no disk"),
        ("os._exit(1)", 1, 3, "Error: The driver ended with exit code 1."),
        ("os._exit(life == 0)", 0, 2, "restarts are left."),
    ],
)
def test_a_driver_restarts_up_to_the_limit_and_the_reason_is_printed_last(
    tmp_path: Path, driver: str, code: int, lives: int, last: str
) -> None:
    job = Job(tmp_path, driver, restarts=2)
    assert job.end() == code
    assert len(list(job.lives.iterdir())) == lives
    assert last in job.output()[-1]
    assert [line for line in job.output() if line.startswith("Error: ")][-1:] == [last] or code == 0
    assert sum("SLIPWAY_EVENT" in line for line in job.output()) == lives - 1


def test_a_line_without_an_end_is_copied(tmp_path: Path) -> None:
    job = Job(tmp_path, 'for n in range(3000): os.write(1, b"\\r%098d" % n)\nos._exit(0)')
    assert job.end() == 0
    assert job.pod_log.read_bytes().replace(b"\n", b"") == job.log.read_bytes().replace(b"\n", b"")


def test_a_stopped_job_does_not_restart_its_driver(tmp_path: Path) -> None:
    """Ray signals the whole process group. The driver's last output is not lost."""
    driver = """signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"a checkpoint\\n"), os._exit(1)))
print("ready", flush=True)
time.sleep(60)"""
    job = Job(tmp_path, driver, restarts=5)
    job.until("ready")
    os.killpg(job.process.pid, signal.SIGTERM)
    assert job.end() == 1
    assert "a checkpoint" in job.output()
    assert "a checkpoint" in job.pod_log.read_text()
    assert len(list(job.lives.iterdir())) == 1


def test_a_signal_to_the_supervisor_is_forwarded_to_the_driver(tmp_path: Path) -> None:
    job = Job(tmp_path, "print('ready', flush=True); time.sleep(60)", restarts=5)
    job.until("ready")
    job.process.terminate()
    assert job.end() == 128 + signal.SIGTERM


def test_a_signal_during_the_fork_is_forwarded(tmp_path: Path) -> None:
    script = """
import os, signal, sys, time
from trainer import driver_supervisor
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
code = driver_supervisor.supervise(lambda: 0)
if code is None:
    time.sleep(60)
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, timeout=30, check=False)
    assert done.returncode == 128 + signal.SIGTERM


def test_if_the_pod_stops_the_driver_ends_and_the_supervisor_waits_for_the_pod(tmp_path: Path) -> None:
    """KubeRay would treat a job that ended as failed. The hook waits only for the driver."""
    driver = """signal.signal(signal.SIGUSR1, lambda *_: (os.write(1, b"a checkpoint\\n"), os._exit(3)))
print("ready", flush=True)
time.sleep(60)"""
    job = Job(tmp_path, driver, restarts=5)
    job.until("ready")
    job.process.send_signal(signal.SIGUSR1)
    job.until("a checkpoint")
    deadline = time.monotonic() + 10
    while psutil.Process(job.process.pid).children():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.5)
    assert job.process.poll() is None
    assert len(list(job.lives.iterdir())) == 1
    job.process.terminate()
    assert job.end() == 3


def test_a_driver_ends_with_its_supervisor(tmp_path: Path) -> None:
    job = Job(tmp_path, "print('driver', os.getpid(), flush=True); time.sleep(60)", restarts=5)
    job.until("driver ")
    driver = int(job.output()[0].split()[1])
    job.process.kill()
    job.end()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{driver}").exists() and "Z" not in Path(f"/proc/{driver}/stat").read_text().split(")")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_child_that_keeps_the_output_open_does_not_delay_the_job(tmp_path: Path) -> None:
    job = Job(
        tmp_path, """import subprocess; subprocess.Popen(["sleep", "20"]); print("done", flush=True); os._exit(0)"""
    )
    started = time.monotonic()
    assert job.end() == 0
    assert time.monotonic() - started < 16
    assert job.output() == ["done"]


@pytest.mark.parametrize("path", ["/no/such/file", "/proc/1/nothing"])
def test_a_log_that_cannot_be_opened_is_reported_once(tmp_path: Path, path: str) -> None:
    job = Job(tmp_path, "print('one'); print('two', flush=True); os._exit(0)", pod_log=path)
    assert job.end() == 0
    warning = f"Cannot write to the pod's log ({path}): No such file or directory."
    assert job.output() == [f"{warning} kubectl logs does not show the output.", "one", "two"]


def test_without_a_log_of_the_pod_nothing_is_reported(tmp_path: Path) -> None:
    job = Job(tmp_path, "print('one', flush=True); os._exit(0)", pod_log="")
    assert job.end() == 0
    assert job.output() == ["one"]


def test_a_log_without_a_reader_does_not_block(tmp_path: Path) -> None:
    """The log is a pipe without a reader until it is full. The next line reports how many lines are missing."""
    os.mkfifo(tmp_path / "fifo")
    with os.fdopen(os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as reader:
        driver = """for n in range(1500): os.write(1, b"%d %s\\n" % (n, b"x" * 90))
while not os.path.exists(sys.argv[1] + "/read"): time.sleep(0.05)
print("later", flush=True); os._exit(0)"""
        job = Job(tmp_path, driver, pod_log=str(tmp_path / "fifo"))
        job.until("1499 x")
        taken = reader.read(1 << 20)
        (job.lives / "read").touch()
        assert job.end() == 0
        assert len(job.output()) == 1501
        lines = taken.decode().splitlines()
        assert [line.split()[0] for line in lines[:-1]] == [str(n) for n in range(len(lines) - 1)]
        rest = reader.read(1 << 20).decode().splitlines()
    assert rest[-1] == "later"
    assert re.fullmatch(r"\(\d+ lines are missing here: the log accepted none\.\)", rest[-2])
