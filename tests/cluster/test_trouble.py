"""The harness can stop its API server, and its processes end when the tests are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import urllib3

from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import Processes
from tests.cluster.test_control_plane import until

CHECKOUT = Path(__file__).parents[2]
KILLED = """
import os, signal, sys
from tests.cluster.processes import Processes
processes = Processes("slipway-killed-")
processes.start("sleeper", ["sleep", "600"])
print(processes.folder, processes.pid("sleeper"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_api_server_restarts_with_its_data(control_plane: ControlPlane, namespace: str) -> None:
    token = control_plane.service_account_token(namespace, "default")
    path = f"/api/v1/namespaces/{namespace}"
    uid = control_plane.api.get(path)["metadata"]["uid"]
    control_plane.stop_api_server()
    with pytest.raises(urllib3.exceptions.HTTPError):
        control_plane.api.get(path)
    control_plane.start_api_server()
    assert control_plane.api.get(path)["metadata"]["uid"] == uid
    again = control_plane.kubeconfig_for("default", token=token)
    assert again.stat().st_mode & 0o077 == 0
    control_plane.add_namespace(f"{namespace}-after")  # the controllers have connected again
    control_plane.api.delete(f"/api/v1/namespaces/{namespace}-after")
    until(lambda: control_plane.api.find(f"/api/v1/namespaces/{namespace}-after") is None)


def test_the_api_server_can_hang(control_plane: ControlPlane) -> None:
    with control_plane.paused_api_server():
        assert psutil.Process(control_plane.processes.pid("kube-apiserver")).status() == psutil.STATUS_STOPPED
    assert control_plane.api.get("/readyz") == "ok"


def test_no_process_outlives_killed_tests() -> None:
    command = [sys.executable, "-c", KILLED]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder, pid = done.stdout.split()
    until(lambda: not Path(folder).exists() and not psutil.pid_exists(int(pid)))


def test_a_process_that_does_not_start_shows_its_log() -> None:
    processes = Processes("slipway-test-")
    processes.start("speaks", ["sh", "-c", "echo no such flag: --wrong; exit 1"])
    until(processes.ended)
    assert processes.ended() == ["speaks"]
    assert "--- speaks.log\nno such flag: --wrong" in processes.last_lines()
    processes.stop()
    assert not processes.folder.exists()
