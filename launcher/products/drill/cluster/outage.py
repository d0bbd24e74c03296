"""The API server is gone for a minute, for one command: `launcher attach` in a process of its own.

The API server itself, the controllers and the pods keep their connections: other users need them. The command reaches
the API server through a proxy on loopback, which the drill closes. The proxy is set in a kubeconfig that comes before
those of the user (`proxy-url`). It forwards TLS, so it reads neither credentials nor answers.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from launcher.errors import LauncherError
from launcher.k8s import kubeconfig
from launcher.k8s.client import Cluster
from launcher.k8s.kubeconfig import Access
from launcher.products.common import child
from launcher.safe_yaml import safe_loader

if TYPE_CHECKING:
    from launcher.products.drill.cluster.run import ClusterRun

SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_LONGEST_HEAD = 1 << 14
_LOST, _BACK = "The run continues; retrying.", "The API server answers again."


def impossible(cluster: Cluster) -> str:
    """Return why the API server cannot be taken from a command; "" if it can."""
    access = cluster.access
    if not access.server.startswith("https://"):
        return f"The API server {access.server} is not https, which the proxy of the drill needs."
    if access.proxy is not None and access.proxy.scheme != "http":
        return f"The proxy of the drill cannot use the proxy {access.proxy.url}, only an http proxy."
    if _cluster_entry(access) is None:
        return "It needs a kubeconfig, to which the drill adds its proxy."
    return ""


def cut_off(run: ClusterRun) -> None:
    """Follow the run in another process, and take the API server from it for some time. Returns after that time."""
    run.outage = outage = Outage(run)
    outage.wait_until_followed(run.place.patience)
    before = run.steps()
    outage.gate.close()
    time.sleep(SECONDS)
    outage.stood_still = run.steps() <= before and not run.status().state.ended
    outage.gate.open()


def problems(run: ClusterRun) -> Sequence[str]:
    """Return what the command did not do, once the run has ended."""
    return [] if run.outage is None else run.outage.problems(succeeded=run.status().state == "succeeded")


def end(run: ClusterRun) -> None:
    """End the command if it has not ended, and the gate."""
    if run.outage is not None:
        run.outage.end()
        run.outage = None


class Outage:
    """`launcher attach` for a run, behind a gate. `stood_still`: the run trained no step while the gate was closed."""

    def __init__(self, run: ClusterRun) -> None:
        self.stood_still = False
        self._patience = run.place.patience
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipway-drill-")))
            self.gate = stack.enter_context(Gate(run.place.cluster.access))
            self._log = folder / "attach.log"
            config = folder / "kubeconfig"
            config.touch(0o600)
            config.write_text(json.dumps(_config(run.place.cluster.access, self.gate.url)), encoding="utf-8")
            files = os.pathsep.join(map(str, [config, *kubeconfig.files()]))
            target = run.place.target
            words = ["attach", run.name, "-n", str(target.namespace)]
            words += ["--context", target.context] if target.context else []
            stream = stack.enter_context(self._log.open("wb"))
            command, env = child.module("launcher", *words), {"KUBECONFIG": files}
            self._process = stack.enter_context(child.running(command, stdout=stream, stderr=stream, env=env))
            self._stack = stack.pop_all()

    def wait_until_followed(self, seconds: float) -> None:
        """Wait until the command shows the run. Raises LauncherError if it does not, with its output."""
        deadline = time.monotonic() + seconds
        while not (text := self._text()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise LauncherError(f"launcher attach does not follow the run: {text or 'it prints nothing.'}")
            time.sleep(0.1)

    def problems(self, *, succeeded: bool) -> list[str]:
        found = ["The run trained no step while the command did not reach the API server."] * self.stood_still
        try:
            code: int | None = self._process.wait(self._patience)
        except subprocess.TimeoutExpired:
            code = None
        if code != (0 if succeeded else 1):
            how = "did not end with the run" if code is None else f"ended with the exit code {code}"
            found.append(f"launcher attach {how}: {self._text()[-500:]}")
        for sentence in (_LOST, _BACK):
            if (times := self._text().count(sentence)) != 1:
                found.append(f'launcher attach reported "{sentence}" {times} times instead of once.')
        return found

    def end(self) -> None:
        self._stack.close()

    def _text(self) -> str:
        return " ".join(self._log.read_text(encoding="utf-8", errors="replace").split())


def _cluster_entry(access: Access) -> dict[str, Any] | None:
    """Return the cluster of the kubeconfig, as the first file with its name has it."""
    for file in kubeconfig.files():
        tree = safe_loader()(file.read_bytes()).get_single_data()
        for entry in (tree or {}).get("clusters") or ():
            if entry.get("name") == access.cluster:
                return dict(entry["cluster"])
    return None


def _config(access: Access, gate: str) -> dict[str, Any]:
    """Return a kubeconfig that has only the cluster, behind the gate. The other files have the context and the user."""
    entry = {**(_cluster_entry(access) or {}), "proxy-url": gate}
    if access.ca is not None:  # a path is relative to its file
        entry.pop("certificate-authority", None)
        entry["certificate-authority-data"] = base64.b64encode(access.ca).decode()
    return {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": access.cluster, "cluster": entry}]}


class Gate(socketserver.ThreadingTCPServer):
    """A proxy on loopback that connects to one API server only, and to none while it is closed."""

    daemon_threads = True

    def __init__(self, access: Access) -> None:
        server = urlsplit(access.server)
        self.server, self._proxy = (str(server.hostname), server.port or 443), access.proxy
        self._closed, self._lock = False, threading.Lock()
        self._connected: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Passage)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        """End all connections, and refuse new ones."""
        with self._lock:
            self._closed = True
            for each in self._connected:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        """Accept connections again."""
        self._closed = False

    def connect(self) -> tuple[socket.socket, bytes]:
        """Return a connection to the API server, and the bytes that open it. Raises OSError."""
        proxy = self._proxy
        there = socket.create_connection((proxy.host, proxy.port) if proxy else self.server, _CONNECT_SECONDS)
        there.settimeout(None)
        if proxy is None:
            return there, b""
        host, port = self.server
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        head = [f"CONNECT {name} HTTP/1.1", f"Host: {name}"]
        if proxy.username is not None:
            word = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
            head.append(f"Proxy-Authorization: Basic {word}")
        return there, "\r\n".join([*head, "", ""]).encode()

    @contextlib.contextmanager
    def passing(self, client: socket.socket) -> Iterator[bool]:
        """While this is open, `close` ends the connection. Yields False if the gate is closed."""
        with self._lock:
            is_open = not self._closed
            self._connected.add(client)
        try:
            yield is_open
        finally:
            with self._lock:
                self._connected.remove(client)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a connection was lost."""

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, name="gate", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.shutdown()
        self.server_close()


class _Passage(socketserver.BaseRequestHandler):
    server: Gate
    request: socket.socket

    def handle(self) -> None:
        here, head = self.request, b""
        while b"\r\n\r\n" not in head:
            part = here.recv(4096)
            if not part or len(head) > _LONGEST_HEAD:
                return
            head += part
        if not self._names_the_server(head):
            here.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        with self.server.passing(here) as is_open:
            if is_open:
                self._forward()
            else:
                here.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")

    def _forward(self) -> None:
        here, (there, opening) = self.request, self.server.connect()
        with there:
            if opening:  # the client receives the answer of the other proxy
                there.sendall(opening)
            else:
                here.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            other = {here: there, there: here}
            while True:
                for ready in select.select([here, there], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    other[ready].sendall(data)

    def _names_the_server(self, head: bytes) -> bool:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split()
        if len(words) != 3 or words[0] != "CONNECT":
            return False
        host, _, port = words[1].rpartition(":")
        return (host.strip("[]").lower(), port) == (self.server.server[0], str(self.server.server[1]))
