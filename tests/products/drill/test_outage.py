"""The proxy of the fault api-server-gone, in front of a server that echoes.

tests/products/drill/cluster/test_cluster_drill.py has the whole fault with a real API server.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.k8s.kubeconfig import Access, load
from launcher.k8s.proxies import Proxy
from launcher.products.drill.cluster import outage
from launcher.products.drill.cluster.outage import Gate


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(1024):
            self.request.sendall(data)


@pytest.fixture
def access() -> Iterator[Access]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        yield Access(f"https://127.0.0.1:{server.server_address[1]}", "lab", "lab", "alice", "research")
        server.shutdown()


def connect(gate: Gate, to: str) -> tuple[socket.socket, bytes]:
    """Return a connection through the proxy, and the first line of its answer."""
    made = socket.create_connection(gate.server_address[:2], 10)  # type: ignore[arg-type]
    made.sendall(f"CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n".encode())
    return made, made.recv(1024).partition(b"\r\n")[0]


def test_connections_end_and_are_refused_until_it_opens(access: Access) -> None:
    to = access.server.removeprefix("https://")
    with Gate(access) as gate:
        first, answer = connect(gate, to)
        assert answer == b"HTTP/1.1 200 OK"
        first.sendall(b"hello")
        assert first.recv(10) == b"hello"
        gate.close()
        assert first.recv(10) == b""
        refused, answer = connect(gate, to)
        assert answer == b"HTTP/1.1 503 Service Unavailable"
        gate.open()
        again, answer = connect(gate, to)
        assert answer == b"HTTP/1.1 200 OK"
        for each in (first, refused, again):
            each.close()


def test_it_connects_to_no_other_server(access: Access) -> None:
    with Gate(access) as gate:
        made, answer = connect(gate, "127.0.0.1:22")
        assert answer == b"HTTP/1.1 403 Forbidden"
        made.close()


def test_it_uses_the_proxy_of_the_user(access: Access) -> None:
    with Gate(access) as users:
        proxy = Proxy("http", "127.0.0.1", int(users.server_address[1]), "HTTPS_PROXY", "alice", "secret")
        with Gate(Access(access.server, "lab", "lab", "alice", "research", proxy=proxy)) as gate:
            made, answer = connect(gate, access.server.removeprefix("https://"))
            assert answer == b"HTTP/1.1 200 OK"
            made.sendall(b"hello")
            assert made.recv(10) == b"hello"
            made.close()


def test_it_is_added_to_the_cluster_of_the_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate, whose path is relative, and the user stay the same."""
    pem = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
    (tmp_path / "ca.pem").write_text(pem)
    server = {"server": "https://lab.example.com/k8s", "certificate-authority": "ca.pem", "tls-server-name": "lab"}
    config: dict[str, Any] = {
        "contexts": [{"name": "a", "context": {"cluster": "lab", "user": "alice"}}],
        "clusters": [{"name": "other", "cluster": {"server": "https://x"}}, {"name": "lab", "cluster": server}],
        "users": [{"name": "alice", "user": {"token": "t"}}],
        "current-context": "a",
    }
    (tmp_path / "users").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "users"))
    before = load()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/first").write_text(json.dumps(outage._config(before, "http://127.0.0.1:9")))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'sub/first'}:{tmp_path / 'users'}")
    after = load()
    assert (after.server, after.context, after.user, after.server_name) == (
        *("https://lab.example.com/k8s", "a", "alice", "lab"),
    )
    assert (before.ca, after.ca) == (pem.encode(), pem.encode())
    assert after.proxy is not None
    assert after.proxy.url == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("server", "proxy", "reason"),
    [
        ("http://127.0.0.1:8001", None, "The API server http://127.0.0.1:8001 is not https, which the proxy"),
        ("https://lab", Proxy("socks5", "bastion", 1080, "proxy-url"), "The proxy of the drill cannot use the proxy s"),
        ("https://lab", None, "It needs a kubeconfig, to which the drill adds its proxy."),
    ],
)
def test_why_it_is_not_possible(
    server: str, proxy: Proxy | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    cluster: Any = SimpleNamespace(access=Access(server, "lab", "lab", "alice", "research", proxy=proxy))
    assert outage.impossible(cluster).startswith(reason)
