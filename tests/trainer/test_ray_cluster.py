"""In a Ray cluster that is there already, as the driver of a RayJob finds it: RAY_ADDRESS, tokens on."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.coverage_by_package import unmeasured
from tests.trainer.ray_nodes import RayNodes
from tests.trainer.runs import CHECKOUT, TrainingHarness, with_run


@pytest.fixture
def environment(cluster: RayNodes) -> dict[str, str]:
    """The environment of a driver on the head."""
    return {**cluster.environment, "RAY_ADDRESS": cluster.address}


def test_a_command_waits_for_as_many_nodes_as_hosts_and_says_so(
    lab: TrainingHarness, cluster: RayNodes, environment: dict[str, str]
) -> None:
    """Two nodes have the CPUs of four hosts, and are two hosts all the same."""
    config = with_run(lab.config("waits-in-cluster", hosts=3), command=["true"])
    often = (
        "from trainer import __main__, command; command.SECONDS_BETWEEN_MESSAGES = 1; raise SystemExit(__main__.main())"
    )
    log = lab.root / "waits-in-cluster.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-c", often, "--config", str(config)],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=CHECKOUT,
            env={**unmeasured(os.environ), **environment},
        )
    deadline = time.monotonic() + 60
    while "Waiting for 3 hosts with 1 free CPU each" not in log.read_text():
        assert driver.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    third = cluster.add()
    try:
        assert driver.wait(60) == 0, log.read_text()
    finally:
        cluster.kill(third)
    assert "CPU of Ray's 3 nodes now: " in log.read_text()
