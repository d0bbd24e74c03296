"""The trainer in an existing Ray cluster, as the driver of a RayJob starts it: with RAY_ADDRESS and tokens."""

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
    """Return the environment of a driver on the head."""
    return {**cluster.environment, "RAY_ADDRESS": cluster.address}


def test_a_command_waits_for_one_node_per_host_and_reports_it(
    lab: TrainingHarness, cluster: RayNodes, environment: dict[str, str]
) -> None:
    """The two nodes have enough CPUs for four hosts, but count as two hosts."""
    config = with_run(lab.config("waits-in-cluster", hosts=3), command=["true"])
    often = (
        "from trainer import __main__, user_command; user_command.SECONDS_BETWEEN_MESSAGES = 1; "
        "raise SystemExit(__main__.main())"
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
