"""A server on loopback that acts with the user's own rights, and its guards against other users and pages.

The port accepts connections on loopback only, only from this user's own processes if the system reports their owner
(Linux), no cross-site requests of a browser, and only requests with a token that each server generates. A browser gets
the token with the address, which sets a cookie and redirects to the address without the token; other clients send
`Authorization: Bearer TOKEN`. A browser must not keep the pages, because another server can later have the same port:
nothing is cached, and service workers are refused.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import http.server
import os
import secrets
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlencode

from launcher.errors import LauncherError

_LOOPBACK = "127.0.0.1"
_ESTABLISHED = "01"  # TCP_ESTABLISHED in the kernel's tcp_states.h


class GuardedServer(http.server.ThreadingHTTPServer):
    """Serves at `address`. Each request needs `token`, which is new for each server.

    `what` and `command` name the pages and the command that serves them, in refusals: "Ray's dashboard", "launcher
    dashboard". The port 0 selects a free port. Raises LauncherError if the port cannot be used.
    """

    def __init__(self, port: int, handler: type[GuardedHandler], *, what: str, command: str) -> None:
        try:
            super().__init__((_LOOPBACK, port), handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "is in use" if error.errno == errno.EADDRINUSE else "cannot be used: permission denied"
            raise LauncherError(
                f"The port {port} of this machine {why}.", "Without --port, a free port is used."
            ) from error
        self.what, self.command = what, command
        self.port = int(self.server_address[1])
        self.address = f"http://{_LOOPBACK}:{self.port}"
        self.token = secrets.token_urlsafe(32)
        # A browser sends the cookies of a host to all its ports.
        self.cookie = f"slipway-{self.port}"

    @property
    def url(self) -> str:
        """The address for a browser, with the token."""
        return f"{self.address}/?{urlencode({'token': self.token})}"

    def is_token(self, text: str) -> bool:
        """Return whether `text` is the token. The time does not depend on `text`."""
        return hmac.compare_digest(text.encode(), self.token.encode())


class GuardedHandler(http.server.BaseHTTPRequestHandler, ABC):
    """Handles the requests that pass the guards: a subclass has `serve`."""

    server: GuardedServer
    server_version, sys_version = "slipway", ""
    timeout = 60

    @abstractmethod
    def serve(self) -> None:
        """Answer the request with `start` or `answer`."""

    def handle_one_request(self) -> None:
        if not _same_user(self.connection):
            self.close_connection = True
            return
        super().handle_one_request()

    def _guarded(self) -> None:
        self.close_connection = True
        if refusal := self._foreign():
            self.answer(*refusal)
        elif self._opens():
            self._set_cookie()
        elif not self._has_token():
            self.answer(
                401,
                f"{self.server.address} needs the token that {self.server.command} printed: open the printed address, "
                "or send the header Authorization: Bearer TOKEN.",
            )
        else:
            self.serve()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _guarded  # noqa: N815 - http.server's names

    def _foreign(self) -> tuple[int, str] | None:
        """Return the refusal of a request that comes from another web page, or that outlives its page."""
        port = self.server.port
        hosts = {f"{_LOOPBACK}:{port}", f"localhost:{port}"}
        if self.headers.get("Host", "").lower() not in hosts:
            # Another name that resolves to this machine: a DNS rebinding attack by a web page.
            return 421, f"{self.server.what} is available only at {self.server.address}."
        origin = self.headers.get("Origin")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") or (
            origin is not None and origin.lower() not in {f"http://{host}" for host in hosts}
        ):
            return 403, "Requests of another web page are rejected; open the address itself."
        if self.headers.get("Service-Worker") is not None:
            # The browser would keep it, and run it in all later servers with this port.
            return 403, "Service workers are rejected."
        return None

    def _opens(self) -> bool:
        """Return whether the request is for the address that the command printed."""
        path, _, query = self.path.partition("?")
        offered = parse_qs(query).get("token") or [""]
        return self.command == "GET" and path == "/" and self.server.is_token(offered[0])

    def _set_cookie(self) -> None:
        """Redirect to the address without the token, so that no page has an address with it."""
        cookie = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
        headers = {"Location": "/", "Set-Cookie": cookie, "Referrer-Policy": "no-referrer", "Content-Length": "0"}
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.start(303, headers)

    def _has_token(self) -> bool:
        cookies = ";".join(self.headers.get_all("Cookie") or []).split(";")
        pairs = (each.strip().partition("=") for each in cookies)
        offered = [value for name, _, value in pairs if name == self.server.cookie]
        scheme, _, bearer = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            offered.append(bearer.strip())
        return any(self.server.is_token(each) for each in offered)

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers of an answer, which no cache may keep."""
        self.send_response(status)
        for name, value in {**headers, "Cache-Control": "no-store", "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def answer(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        """Send a whole answer: a text of the content type `kind`."""
        data = f"{text}\n".encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.start(status, {"Content-Type": kind, "Content-Length": str(len(data))})
            if self.command != "HEAD":
                self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Do nothing, to keep requests out of the user's terminal."""


def _same_user(connection: socket.socket) -> bool:
    """Return whether the peer is a process of this user; True if the system has no table of connections.

    Only an established row has the owner's uid. The kernel reports the uid 0 for a socket that its process has closed.
    """
    try:
        rows = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return True
    try:
        theirs, ours = (_url(*address) for address in (connection.getpeername(), connection.getsockname()))
    except OSError:  # the peer has reset the connection
        return False
    wanted = [theirs, ours, _ESTABLISHED, str(os.getuid())]
    return any([*fields[1:4], fields[7]] == wanted for fields in map(str.split, rows))


def _url(host: str, port: int) -> str:
    """Return an address in the format of /proc/net/tcp: the four bytes as a native integer, then the port."""
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    return f"{number:08X}:{port:04X}"
