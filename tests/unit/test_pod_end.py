"""The preStop hook of a host and of the head (trainer/prestop.py) without Ray.

A fake process with the command line of a raylet replaces the raylet. A real one ends with its control plane, and takes
seconds to start; tests/trainer uses it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer import prestop

CHECKOUT = Path(__file__).parents[2]
RAYLET = "import sys, time; print(flush=True); time.sleep(120)"
# It runs as long as Ray's command waits for a control plane that does not answer.
RAY = "#!/bin/sh\nexec sleep 60\n"

# A raylet whose child is the supervisor of a driver, which is a fork with the same command line. The driver ends 0.5 s
# after the supervisor received SIGUSR1.
HEAD = """
import subprocess, sys
subprocess.run([sys.argv[1], "-c", sys.argv[2], "-m", "trainer", "--job-config", "x"])
"""
SUPERVISOR = """
import os, signal, time
reading, writing = os.pipe()
if not os.fork():
    os.close(writing)
    os.read(reading, 1)
    time.sleep(0.5)
    os._exit(0)
os.close(reading)
signal.signal(signal.SIGUSR1, lambda *_: os.write(writing, b"x"))
print(flush=True)
os.wait()
print("The driver has ended.", flush=True)
time.sleep(60)
"""


def test_the_heads_hook_waits_until_the_drivers_have_ended() -> None:
    node = ["raylet", "-c", HEAD, sys.executable, SUPERVISOR, "--node_id=0a0c"]
    raylet = subprocess.Popen(
        node, executable=sys.executable, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    hook = [sys.executable, "-m", "trainer.prestop", "--seconds", "60", "--head", "--node-id"]
    try:
        assert raylet.stdout is not None and raylet.stdout.readline() == "\n"
        assert subprocess.run([*hook, "another"], cwd=CHECKOUT, timeout=30, check=False).returncode == 0
        assert not select.select([raylet.stdout], [], [], 0.7)[0]  # the hook of another node signals nothing
        assert subprocess.run([*hook, "0a0c"], cwd=CHECKOUT, timeout=30, check=False).returncode == 0
        assert raylet.stdout.readline() == "The driver has ended.\n"
    finally:
        os.killpg(raylet.pid, signal.SIGKILL)
        raylet.wait()
        assert raylet.stdout is not None
        raylet.stdout.close()


def test_a_pod_whose_ray_has_ended_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests may run Ray on this machine, so the list of processes is replaced.
    here = prestop.Process(1, 0, ("sleep",))
    monkeypatch.setattr(prestop, "_processes", lambda: {1: here})
    for options in ([], ["--head"]):
        monkeypatch.setattr(sys, "argv", ["prestop", "--seconds", "60", *options])
        assert prestop.main() == 0
    raylet = prestop.Process(2, 1, ("/ray/raylet", "--node_id=0a0d", "--gcs-address=[fd00::1]:6379"))
    monkeypatch.setattr(prestop, "_processes", lambda: {1: here, 2: raylet})
    assert prestop._own_node() == "0a0d"
    assert prestop._head_of("0a0d") == ("fd00::1", 6379)
    assert prestop._head_of("another") is None


def test_a_host_with_nothing_to_train_does_not_wait_for_a_lost_head(tmp_path: Path) -> None:
    (tmp_path / "ray").write_text(RAY)
    (tmp_path / "ray").chmod(0o755)
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        head.listen()
        address = ":".join(map(str, head.getsockname()))
        node = ["raylet", "-c", RAYLET, "--node_id=0a0b", f"--gcs-address={address}"]
        raylet = subprocess.Popen(node, executable=sys.executable, stdout=subprocess.PIPE)
        hook = None
        try:
            assert raylet.stdout is not None and raylet.stdout.readline()
            hook = subprocess.Popen(
                [sys.executable, "-m", "trainer.prestop", "--seconds", "120", "--node-id", "0a0b"],
                env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
                cwd=CHECKOUT,
            )
            time.sleep(3)
            assert hook.poll() is None  # the hook waits while the control plane exists
            head.close()
            assert hook.wait(10) == 0
        finally:
            for process in filter(None, (raylet, hook)):
                process.kill()
                process.wait()
            assert raylet.stdout is not None
            raylet.stdout.close()
