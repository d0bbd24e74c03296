"""A Ray cluster of several nodes on this machine, with token authentication, as KubeRay starts one in pods.

Its nodes use the machine's own address, because Ray rejects a second node on loopback. All access needs the token.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar

import psutil

from tests.coverage_by_package import unmeasured

BIN = Path(sys.executable).parent


@dataclass
class RayNodes:
    """A head without CPUs for tasks, as in the charts, and nodes with two CPUs each. A run requests one per host."""

    folder: Path
    environment: dict[str, str]
    address: str
    dashboard: str
    token: ClassVar[str] = "a-token-for-this-test-only-0123456789abcdef"
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def start(cls, dashboard_host: str = "127.0.0.1", head_environment: dict[str, str] | None = None) -> RayNodes:
        # A short path, because the path of a socket in it is limited to 107 characters.
        folder = Path(tempfile.mkdtemp(prefix="slipway-", dir="/tmp"))
        (folder / "token").write_text(cls.token)
        port, dashboard = _free_port(), _free_port()
        environment = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            # The nodes share one folder of logs. With more log files than this, each node lists the folder twice a
            # second instead of ten times.
            "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0",
            # The two ports of a head that no option sets.
            "DASHBOARD_METRIC_PORT": str(_free_port()),
            "AUTOSCALER_METRIC_PORT": str(_free_port()),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        address = f"{own_address()}:{port}"
        cluster = cls(folder, environment | (head_environment or {}), address, f"http://{dashboard_host}:{dashboard}")
        cluster._start(
            "--head",
            f"--port={port}",
            "--num-cpus=0",
            f"--temp-dir={folder}",
            "--include-dashboard=true",
            f"--dashboard-host={dashboard_host}",
            f"--dashboard-port={dashboard}",
            # Another Ray on this machine may use Ray's default ports.
            f"--dashboard-agent-listen-port={_free_port()}",
            f"--ray-client-server-port={_free_port()}",
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((dashboard_host, dashboard), 1):
                return cluster
            time.sleep(0.5)
        raise AssertionError("Ray's head did not start")

    @classmethod
    def of(cls, rayjob: dict[str, Any]) -> RayNodes:
        """Start a head with the chart's timeout for the end of a job, and two nodes. `rayjob` is the rendered spec."""
        (head,) = rayjob["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
        timeout = {each["name"]: each["value"] for each in head["env"] if each["name"].startswith("RAY_JOB_STOP")}
        assert timeout
        cluster = cls.start(head_environment=timeout)
        cluster.add()
        cluster.add()
        return cluster

    def add(self, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Add a node, and return when it is up. Retries a node that does not start, as Kubernetes retries a pod.

        `environment` has variables of this node only.
        """
        for _ in range(5):
            # Otherwise two nodes of one machine use the same port for their agents, and the second one ends.
            port = f"--dashboard-agent-listen-port={_free_port()}"
            node = self._start(f"--address={self.address}", "--num-cpus=2", port, environment=environment)
            while node.poll() is None:
                if b"Ray runtime started" in self._log(node).read_bytes():
                    return node
                time.sleep(0.2)
            self.nodes.remove(node)
        raise AssertionError(f"no node started:\n{self._log(node).read_text()[-2000:]}")

    def _start(self, *options: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a node as a container's first process: its output goes to a pipe, and from there to a log."""
        node = subprocess.Popen(
            [BIN / "ray", "start", "--block", f"--node-ip-address={own_address()}", *options],
            env={**unmeasured(os.environ), **self.environment, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._log(node).touch()
        threading.Thread(target=_copy_to_log, args=[node.stdout, self._log(node)], daemon=True).start()
        self.nodes.append(node)
        return node

    @property
    def head(self) -> subprocess.Popen[bytes]:
        return self.nodes[0]

    def pod_log(self) -> str:
        """Return the log of the head's container, as `kubectl logs` shows it."""
        return self.log(self.head)

    def log(self, node: subprocess.Popen[bytes]) -> str:
        """Return the log of a node's container."""
        return self._log(node).read_text(errors="replace")

    def _log(self, node: subprocess.Popen[bytes]) -> Path:
        return self.folder / f"start-{node.pid}.log"

    def node_id(self, node: subprocess.Popen[bytes]) -> str:
        """Return Ray's id of a node, from the command line of its raylet."""
        for process in psutil.Process(node.pid).children(recursive=True):
            for word in process.cmdline():
                if word.startswith("--node_id="):
                    return word.removeprefix("--node_id=")
        raise AssertionError("the node has no raylet")

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """End a node and all processes on it, as the deletion of a pod does."""
        self.nodes.remove(node)
        for process in [*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        node.wait(30)

    def stop(self) -> None:
        for node in reversed(self.nodes.copy()):
            self.kill(node)
        shutil.rmtree(self.folder, ignore_errors=True)


def _copy_to_log(pipe: IO[bytes], log: Path) -> None:
    """Write the output of a container's first process to its log, as the container runtime does."""
    with pipe, contextlib.suppress(FileNotFoundError), log.open("ab", buffering=0) as file:
        while output := os.read(pipe.fileno(), 1 << 16):
            file.write(output)


def own_address() -> str:
    """Return this machine's address, or loopback if it has no other. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
