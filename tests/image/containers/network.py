"""Network namespaces on a bridge: each pod has its own address, and no traffic leaves the network.

The bridge is in a namespace, too (the node's), so networks are isolated from each other and from this machine's own
network. As in a cluster, pods have a default route to the node, but the node does not forward.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAMESPACES = Path("/run/netns")


class Network:
    """The namespaces of one node. Their names begin with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0
        self.node = self._add()
        self.address = "10.244.0.1"
        _ip("-n", self.node, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.node, "address", "add", f"{self.address}/24", "dev", "bridge")
        _ip("-n", self.node, "link", "set", "bridge", "up")

    def add(self) -> tuple[str, str]:
        """Create a namespace on the bridge. Returns its name and its address."""
        namespace = self._add()
        address = f"10.244.0.{self._count}"
        cable = f"pod{self._count}"
        _ip("-n", self.node, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("-n", self.node, "link", "set", cable, "master", "bridge", "up")
        _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        _ip("-n", namespace, "route", "add", "default", "via", self.address)
        return namespace, address

    def remove(self, namespace: str) -> None:
        _ip("netns", "delete", namespace)

    def _add(self) -> str:
        self._count += 1
        namespace = f"{self._prefix}-{self._count}"
        _ip("netns", "add", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        return namespace


def path_of(namespace: str) -> Path:
    return _NAMESPACES / namespace


def remove_all(prefix: str) -> None:
    """Remove all namespaces of a network, including those of other processes."""
    if not _NAMESPACES.is_dir():
        return
    for path in sorted(_NAMESPACES.iterdir()):
        if re.fullmatch(rf"{re.escape(prefix)}-[0-9]+", path.name):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", path.name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def http_request(
    namespace: str,
    address: str,
    port: int,
    path: str,
    *,
    method: str = "GET",
    body: Any = None,
    headers: dict[str, str] | None = None,
    seconds: float = 30,
) -> Answer:
    """Send one HTTP request from inside a network namespace. Raises OSError or http.client.HTTPException."""
    connection = _Connection(namespace, address, port, seconds)
    with contextlib.closing(connection):
        content = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, content, {**kind, **(headers or {})})
        response = connection.getresponse()
        return Answer(response.status, response.read())


class _Connection(http.client.HTTPConnection):
    def __init__(self, namespace: str, address: str, port: int, seconds: float) -> None:
        super().__init__(address, port, timeout=seconds)
        self._namespace = namespace

    def connect(self) -> None:
        # A socket stays in the namespace in which it was created.
        with inside(self._namespace) as run:
            self.sock = run.submit(socket.create_connection, (self.host, self.port), self.timeout).result()


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    """An executor with one thread in a network namespace."""

    def enter() -> None:
        descriptor = os.open(path_of(namespace), os.O_RDONLY)
        try:
            os.setns(descriptor, os.CLONE_NEWNET)
        finally:
            os.close(descriptor)

    with concurrent.futures.ThreadPoolExecutor(1, initializer=enter) as run:
        yield run
