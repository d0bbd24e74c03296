"""The processes of replicas, and the folders of claims that they read. Only for tests of the suite; see __init__.py."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import urllib3

from tests.cluster.api import Object
from tests.cluster.control_plane import free_ports
from tests.trainer.ray_nodes import own_address

_PROGRAM = Path(__file__).with_name("replica.py")
_SECONDS = 1.0  # of a readiness probe
_CLAIM = "persistentVolumeClaim"


class Replicas:
    """One process for each pod that serves, by the pod's uid, and a folder for each claim.

    The pods of this machine have its address, so each one has a port of its own.
    """

    address = own_address()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._probes = urllib3.PoolManager()
        self._running: dict[str, tuple[subprocess.Popen[bytes], dict[str, Any]]] = {}

    def path(self, pod: Object, inside: str) -> Path:
        """The folder of this machine for a path in the pod, which is below the mount of a claim."""
        metadata, spec = pod["metadata"], pod["spec"]
        claims = {v["name"]: v[_CLAIM]["claimName"] for v in spec["volumes"] if _CLAIM in v}
        for mount in spec["containers"][0]["volumeMounts"]:
            if mount["name"] in claims and Path(inside).is_relative_to(mount["mountPath"]):
                below = Path(inside).relative_to(mount["mountPath"])
                return Path(self.folder, metadata["namespace"], claims[mount["name"]], below)
        raise AssertionError(f"{metadata['name']} mounts no claim for {inside}")

    def serve(self, pod: Object, arguments: dict[str, Any]) -> None:
        """Start the replica of the pod; start it again if the arguments are others."""
        uid = pod["metadata"]["uid"]
        if (current := self._running.get(uid)) is not None:
            if current[1] == arguments:
                return
            self.stop(uid)
        found = {**arguments, "model": str(self.path(pod, arguments["model"]))}
        with (self.folder / f"{uid}.log").open("ab") as log:
            # -P: the program's folder has another module trainer.
            command = [sys.executable, "-P", str(_PROGRAM), str(port_of(pod))]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        assert process.stdin is not None
        with process.stdin as given:
            given.write(f"{json.dumps(found)}\n".encode())
        self._running[uid] = (process, arguments)

    def failure(self, uid: str) -> str:
        """The output of a replica that has ended; "" if it runs or was not started."""
        found = self._running.get(uid)  # the kubelet's thread removes it with the pod
        if found is None or found[0].poll() is None:
            return ""
        return (self.folder / f"{uid}.log").read_text(errors="replace")[-500:]

    def answers(self, pod: Object) -> bool:
        """Whether the readiness probe of charts/serve succeeds."""
        if pod["metadata"]["uid"] not in self._running:
            return False
        url = f"http://{self.address}:{port_of(pod)}/-/healthz"
        try:
            return self._probes.request("GET", url, retries=False, timeout=_SECONDS).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def stop(self, uid: str) -> None:
        if uid in self._running:
            process, _ = self._running.pop(uid)
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
            process.wait()

    def stop_all(self) -> None:
        for uid in list(self._running):
            self.stop(uid)
        self._probes.clear()  # closes the connections


def port_of(pod: Object) -> int:
    """The port of the API, which kuberay.py has set."""
    ports = pod["spec"]["containers"][0]["ports"]
    return next(int(port["containerPort"]) for port in ports if port["name"] == "serve")


def with_own_port(spec: Object) -> Object:
    """The spec of a pod that serves, with a port that no other process of this machine has."""
    (port,) = free_ports(1)
    first, *rest = spec["containers"]
    ports = [{**each, "containerPort": port} if each["name"] == "serve" else each for each in first["ports"]]
    return {**spec, "containers": [{**first, "ports": ports}, *rest]}


@contextmanager
def replicas() -> Iterator[Replicas]:
    """Replicas that end with this context."""
    with tempfile.TemporaryDirectory(prefix="slipway-e2e-replicas-") as name:
        made = Replicas(Path(name))
        try:
            yield made
        finally:
            made.stop_all()
