"""Servers on loopback that receive notifications, and broken ones."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKEN = "T0P-SECRET"


@dataclass
class Received:
    """A server: its URL, which has a secret, and the requests that it has received: path and JSON body."""

    url: str = ""
    requests: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        return [body for _, body in self.requests]


@contextmanager
def http(
    answers: Sequence[int] = (200,), *, certificate: Path | None = None, location: str = "", drip: float = 0.0
) -> Iterator[Received]:
    """Serve with these statuses, one for each request; the last one is repeated. `drip`: answer a byte per second."""
    received = Received()
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.requests.append((self.path, json.loads(body)))
            status = left.pop(0) if len(left) > 1 else left[0]
            if drip:
                for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * int(drip):
                    self.connection.send(bytes([byte]))
                    time.sleep(0.3)
                return
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            received.requests.append((self.path, None))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up is a part of the test
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    received.url = f"{scheme}://127.0.0.1:{server.server_port}/services/{TOKEN}"
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def silent() -> Iterator[Received]:
    """Accept connections, and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Received(f"http://127.0.0.1:{server.getsockname()[1]}/services/{TOKEN}")


def refusing() -> str:
    """Return a URL of a port that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}/services/{TOKEN}"


@contextmanager
def smtp(*, password: str = "", refuse: str = "", context: ssl.SSLContext | None = None) -> Iterator[Any]:
    """Serve SMTP; with a context, STARTTLS. Yields the handler with `mails`, `port` and `logins`."""
    from aiosmtpd.controller import Controller
    from aiosmtpd.smtp import AuthResult, LoginPassword

    class Mails:
        mails: list[Any]
        logins: list[Any]
        port = 0

        def __init__(self) -> None:
            self.mails, self.logins = [], []

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
            if refuse:
                return refuse
            self.mails.append(envelope)
            return "250 OK"

    handler = Mails()

    def check(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> Any:
        good = isinstance(data, LoginPassword) and data.password == password.encode()
        handler.logins.append(mechanism)
        return AuthResult(success=good, handled=True)

    options: dict[str, Any] = {"tls_context": context} if context is not None else {}
    if password:
        options |= {"authenticator": check, "auth_required": True, "auth_require_tls": context is not None}
    controller = Controller(handler, hostname="127.0.0.1", port=0, **options)
    # The controller tests a port that it was given; with 0 it must look it up.
    with socket.create_server(("127.0.0.1", 0)) as free:
        controller.port = free.getsockname()[1]
    controller.start()
    handler.port = controller.port
    try:
        yield handler
    finally:
        controller.stop()


def wait_for(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Return the first true value of a condition. Raises AssertionError after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError("the condition did not become true")
