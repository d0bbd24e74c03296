"""In a Ray cluster that is there already, as the driver of a RayJob finds it: RAY_ADDRESS, tokens on."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.trainer.runs import Lab, Run, numbers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A head with two CPUs on loopback, token authentication on; the environment of a driver in it."""
    folder = tmp_path_factory.mktemp("ray")
    token = folder / "token"
    token.write_text("a-token-for-this-test-only-0123456789abcdef")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        # Else both sides take the machine's own address for 127.0.0.1.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }
    head = subprocess.Popen(
        [
            Path(sys.executable).parent / "ray",
            "start",
            "--head",
            "--block",
            "--num-cpus=2",
            "--include-dashboard=false",
            "--node-ip-address=127.0.0.1",
            f"--port={port}",
            # Short: the path of a socket in it must not be longer than 107 characters.
            f"--temp-dir={Path('/tmp') / f'slipway-{os.getpid()}'}",
        ],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield {**environment, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    # Asked politely it takes a minute, and its agents another.
    processes = [*psutil.Process(head.pid).children(recursive=True), psutil.Process(head.pid)]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    head.wait(30)


def test_a_driver_trains_in_a_cluster_that_is_there(lab: Lab, undisturbed: Run, cluster: dict[str, str]) -> None:
    run = lab.train(lab.config("in-cluster"), **cluster)
    assert run.process.returncode == 0, run.output()[-4000:]
    assert numbers(run.metrics()) == numbers(undisturbed.metrics())


def test_a_config_error_in_a_cluster_exits_2_too(lab: Lab, cluster: dict[str, str]) -> None:
    run = lab.train(lab.config("refused-in-cluster", decoder_block="llama9"), **cluster)
    assert run.process.returncode == 2, run.output()[-4000:]
    assert "decoder_block" in run.events("error")[-1]["message"]
