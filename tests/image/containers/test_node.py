"""A node leaves nothing behind: not after its end, and not after Ctrl-C. The next node cleans up after kill -9."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.image.containers import node as nodes
from tests.image.containers.node import ImageFiles, mounts_below

CHECKOUT = Path(__file__).parents[3]


def sleeping() -> dict[str, Any]:
    """A pod that sleeps, with the security context and a memory volume as in the chart's pods."""
    return {
        "metadata": {"name": "sleeper", "namespace": "research"},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "sleeper",
                    "command": ["sleep", "infinity"],
                    "volumeMounts": [{"name": "memory", "mountPath": "/dev/shm"}],
                    "resources": {"limits": {"memory": "64Mi"}},
                }
            ],
            "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
        },
    }


# The program of another process, which the test ends. It prints the node's name when the pod runs.
HOLD = """
import json, pathlib, sys, time
from tests.image.containers.node import ImageFiles, node
from tests.image.containers.pod import Pod, PodContext
from tests.image.containers.test_node import sleeping
image = ImageFiles(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]))
try:
    with node() as made:
        pod = Pod(PodContext(made, image), sleeping())
        while pod.phase != "Running":
            pod.check()
            if pod.over:
                sys.exit(f"the pod has ended: {pod.log()}")
            time.sleep(0.05)
        print(made.name, flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def holder(image: ImageFiles) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process with a node on which a pod runs, and the node's name."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(image.rootfs), json.dumps(image.config)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    )
    assert process.stdout is not None
    with process:
        try:
            name = process.stdout.readline().strip()
            assert name == f"slipway-{process.pid}"
            yield process, name
        finally:
            process.kill()


def left(name: str) -> list[str]:
    """Everything of a node that still exists."""
    found = [str(path) for path in mounts_below(nodes.ROOT / name)]
    found += [str(path) for path in Path("/run/netns").glob(f"{name}-*")]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{name}")]
    found += [str(path) for path in nodes.ROOT.glob(f"{name}*")]
    found += [
        path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if f"{name}/runc".encode() in _read(path)
    ]
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_ctrl_c_removes_all(holder: tuple[subprocess.Popen[str], str]) -> None:
    process, name = holder
    kinds = left(name)
    assert any("/run/netns/" in each for each in kinds)
    assert any("/sys/fs/cgroup/memory" in each for each in kinds)
    assert any("shm" in each or "memory" in each for each in kinds)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert left(name) == []


def test_the_next_node_removes_a_killed_node_and_keeps_a_running_one(
    holder: tuple[subprocess.Popen[str], str],
) -> None:
    process, name = holder
    nodes.sweep()
    assert left(name)
    assert process.poll() is None
    process.kill()
    process.wait(30)
    assert left(name)
    nodes.sweep()
    assert left(name) == []
