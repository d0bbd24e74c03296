"""API servers and proxies on this machine that note the connections and requests which arrive.

    with Servers(folder) as servers:
        …
        servers.take()   # ["SOCKS5 api.invalid:HTTPS u:p", "HTTPS Authorization: Bearer secret"]

A proxy connects to the API server with the requested port, for any host, so no name must exist.
Ports are noted by the names of `ports`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import select
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.cluster.certificates import Authority

HOSTS = ("127.0.0.1", "0.0.0.0", "localhost", "api.invalid", "named.invalid")
NOTED = ("authorization", "impersonate-user", "impersonate-uid", "impersonate-group")
ANSWER = json.dumps({"gitVersion": "v1.36.0", "major": "1", "minor": "36", "kind": "Status"}).encode()


class Servers:
    """An API server with TLS (HTTPS) and one without (HTTP), and a proxy of each scheme.

    `ca` is the authority of all; `other` is an authority that is not trusted. WRONG is an API server whose certificate
    is only for the name named.invalid. REFUSING is a proxy that answers 502.
    """

    def __init__(self, folder: Path) -> None:
        (folder / "other").mkdir()
        self.ca, self.other = Authority(folder), Authority(folder / "other")
        self._noted: list[str] = []
        self._lock = threading.Lock()
        self._tls = self._context("api", HOSTS)
        named = self._context("named", ("named.invalid",))
        self._servers: dict[str, _Server] = {
            "HTTPS": _Server(self._api("HTTPS", self._tls)),
            "HTTP": _Server(self._api("HTTP", None)),
            "WRONG": _Server(self._api("WRONG", named)),
            "PROXY": _Server(self._http_proxy("PROXY", None)),
            "TLSPROXY": _Server(self._http_proxy("TLSPROXY", self._tls)),
            "REFUSING": _Server(self._http_proxy("REFUSING", None)),
            "SOCKS5": _Server(self._socks_proxy),
        }
        self.ports = {name: server.server_address[1] for name, server in self._servers.items()}
        self._names = {str(port): name for name, port in self.ports.items()}

    def __enter__(self) -> Self:
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    def take(self) -> list[str]:
        """Return what has arrived since the last call, in order."""
        with self._lock:
            noted, self._noted = self._noted, []
        return noted

    def _note(self, text: str) -> None:
        with self._lock:
            self._noted.append(text.strip())

    def _context(self, name: str, hosts: tuple[str, ...]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.ca.issue(name, hosts=hosts))
        context.load_verify_locations(self.ca.certificate)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _api(self, name: str, context: ssl.SSLContext | None) -> Callable[[Any], None]:
        def serve(raw: Any) -> None:
            connection = context.wrap_socket(raw, server_side=True) if context else raw
            shown = [name]
            if context and (certificate := connection.getpeercert()):
                shown.append(f"certificate: {certificate['subject'][0][0][1]}")
            with connection, connection.makefile("rb") as stream:
                line, headers = _head(stream)
                noted = [pair for pair in headers if pair[0] in NOTED or pair[0].startswith("impersonate-extra-")]
                shown += [f"{key}: {value}" for key, value in sorted(noted)]
                if "gzip" not in dict(headers).get("accept-encoding", ""):
                    shown.append("uncompressed")
                self._note(", ".join(shown))
                if key := dict(headers).get("sec-websocket-key"):
                    connection.sendall(_websocket(key))
                    return
                status = "401 Unauthorized" if "/rejects" in line else "200 OK"
                head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(ANSWER)}\r\n"
                connection.sendall(f"{head}Connection: close\r\n\r\n".encode() + ANSWER)

        return serve

    def _http_proxy(self, name: str, context: ssl.SSLContext | None) -> Callable[[Any], None]:
        def serve(raw: Any) -> None:
            connection = context.wrap_socket(raw, server_side=True) if context else raw
            with connection, connection.makefile("rb", buffering=0) as stream:
                line, headers = _head(stream)
                method, target, _ = line.split()
                login = dict(headers).get("proxy-authorization", "").removeprefix("Basic ")
                host, _, port = target.removeprefix("http://").partition("/")[0].rpartition(":")
                place = f"{host}:{self._names[port]}"
                self._note(f"{name} {method} {place} {base64.b64decode(login).decode()}")
                if name == "REFUSING":
                    connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                    return
                with socket.create_connection(("127.0.0.1", int(port))) as there:
                    if method == "CONNECT":
                        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    else:
                        lines = [line, *(f"{key}: {value}" for key, value in headers if not key.startswith("proxy-"))]
                        there.sendall("\r\n".join([*lines, "", ""]).encode())
                    _relay(connection, there)

        return serve

    def _socks_proxy(self, connection: Any) -> None:
        """RFC 1928, with the passwords of RFC 1929 if the client offers them: "wrong" is refused, "far" not reached."""
        with connection, connection.makefile("rb", buffering=0) as stream:
            methods = stream.read(stream.read(2)[1])
            login = ""
            connection.sendall(b"\x05\x02" if 2 in methods else b"\x05\x00")
            if 2 in methods:
                name = stream.read(stream.read(2)[1]).decode()
                login = f"{name}:{stream.read(stream.read(1)[0]).decode()}"
                if login == "u:wrong":
                    connection.sendall(b"\x01\x01")
                    return
                connection.sendall(b"\x01\x00")
            kind = stream.read(4)[3]
            if kind == 3:
                host = stream.read(stream.read(1)[0]).decode()
            else:
                host = socket.inet_ntop(
                    *((socket.AF_INET, stream.read(4)) if kind == 1 else (socket.AF_INET6, stream.read(16)))
                )
            port = int.from_bytes(stream.read(2))
            if login == "u:far":
                connection.sendall(b"\x05\x04\x00\x01\x00\x00\x00\x00\x00\x00")
                return
            self._note(f"SOCKS5 {host}:{self._names[str(port)]} {login}")
            with socket.create_connection(("127.0.0.1", port)) as there:
                connection.sendall(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")
                _relay(connection, there)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, serve: Callable[[Any], None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.serve = serve


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        # Clients that do not trust the certificate close the connection.
        with contextlib.suppress(OSError, IndexError, ValueError):
            self.server.serve(self.request)


def _head(stream: Any) -> tuple[str, list[tuple[str, str]]]:
    """The first line of a request, and its headers with lower-case names."""
    lines = []
    while line := stream.readline().decode().rstrip("\r\n"):
        lines.append(line)
    pairs = [line.partition(":")[::2] for line in lines[1:]]
    return lines[0], [(key.lower(), value.strip()) for key, value in pairs]


def _websocket(key: str) -> bytes:
    """An answer with two messages of a command in a pod: its output, and its end."""
    accepted = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
    head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    head += f"Sec-WebSocket-Accept: {accepted}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
    messages = (b"\x01hello", b'\x03{"status": "Success"}')
    frames = b"".join(b"\x82" + bytes([len(message)]) + message for message in messages)
    return head.encode() + frames


def _relay(one: Any, other: Any) -> None:
    """Copy in both directions until one side ends."""
    while True:
        ready = [one] if getattr(one, "pending", lambda: 0)() else select.select([one, other], [], [], 30)[0]
        for source in ready:
            data = source.recv(1 << 16)
            if not data:
                return
            (other if source is one else one).sendall(data)
