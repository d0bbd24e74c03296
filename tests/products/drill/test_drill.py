"""`launcher drill` with real trainings under Ray that are killed and stopped, and Ctrl-C in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

COMMAND = [sys.executable, "-m", "launcher", "drill"]


def drill(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start a drill whose temporary folder is below `folder`."""
    return subprocess.Popen(
        [*COMMAND, *options],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_worker_and_a_stop_cost_what_the_pages_promise(tmp_path: Path) -> None:
    process = drill(tmp_path, "--fault", "worker-killed", "--fault", "stopped", "-o", "json")
    out, err = process.communicate(timeout=1500)
    certificate = json.loads(out)
    assert process.returncode == 0, (certificate, err)
    killed, stopped = certificate["faults"]
    assert killed["steps_lost"] <= certificate["checkpoint_period"]
    assert stopped["steps_lost"] == 0
    assert killed["identical"]
    assert stopped["identical"]
    assert "failed" in killed["notified"]
    assert killed["seconds_to_next_step"] > 0
    assert killed["in_place"]
    assert list(tmp_path.iterdir()) == []


def test_a_storage_that_refuses_costs_what_the_pages_promise(tmp_path: Path) -> None:
    process = drill(tmp_path, "--fault", "storage-refused", "--set", "slice.hosts=1", "-o", "json")
    out, err = process.communicate(timeout=1500)
    certificate = json.loads(out)
    assert process.returncode == 0, (certificate, err)
    (refused,) = certificate["faults"]
    assert refused["steps_lost"] <= 2 * certificate["checkpoint_period"]
    assert refused["identical"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_nothing(tmp_path: Path, number: int) -> None:
    process = drill(tmp_path, "--fault", "stopped")
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("slipway-drill-*/runs/undisturbed/events.jsonl")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
    processes = (" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"]))
    assert [line for line in processes if str(tmp_path) in line] == []


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ("--fault", "flood"),
            1,
            'Error: "flood" is not a fault of a drill on this machine; use worker-killed, node-killed, driver-killed, ',
        ),
        (("--to", "missing/certificate.json"), 1, "Error: missing/certificate.json cannot be written; choose a file"),
    ],
)
def test_an_error_is_reported_before_the_drill(
    tmp_path: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    process = drill(tmp_path, *options)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, message in err) == (code, True), err
