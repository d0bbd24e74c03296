"""Serves the logs of pods as a kubelet does, and commands in them (`execute`).

KWOK's own log server is not used. It never ends the stream of a container that has ended, and needs a Logs object and
a file in the container runtime's format for each pod. Tests of `logs -f` need the end of a stream, and streams that are
cut. One HTTPS server, in a thread of the tests' process, answers for all simulated nodes.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import http.server
import json
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Key = tuple[str, str, str]
_WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455


@dataclass
class Log:
    """The log of one container: (time, line) in order; `ended` when it writes no more lines."""

    lines: list[tuple[datetime.datetime, str]] = field(default_factory=list)
    previous: list[tuple[datetime.datetime, str]] = field(default_factory=list)
    ended: bool = False


class LogServer:
    """Serves /containerLogs/NAMESPACE/POD/CONTAINER over TLS on a free port of 127.0.0.1."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.changed = threading.Condition()
        self.logs: dict[Key, Log] = {}
        self.cuts = 0  # the number of calls of cut()
        self.closing = False
        # Runs a command in a container, and returns its exit code and its output on stderr.
        self.execute: Callable[[Key, list[str]], tuple[int, str]] = lambda _key, _command: (1, "no program runs here")
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.logs = self
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.context = context
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="kubelet-logs", daemon=True
        )
        self._thread.start()

    def write(self, key: Key, lines: list[str], at: datetime.datetime | None = None) -> None:
        with self.changed:
            log = self.logs.setdefault(key, Log())
            log.lines += [(at or datetime.datetime.now(datetime.UTC), line) for line in lines]
            self.changed.notify_all()

    def end(self, key: Key) -> None:
        with self.changed:
            self.logs.setdefault(key, Log()).ended = True
            self.changed.notify_all()

    def restart(self, key: Key) -> None:
        """Start the log again. The old lines become the previous log."""
        with self.changed:
            log = self.logs.setdefault(key, Log())
            log.previous, log.lines, log.ended = log.lines, [], False
            self.changed.notify_all()

    def cut(self) -> None:
        with self.changed:
            self.cuts += 1
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def read(self, key: Key, query: dict[str, str]) -> Iterator[bytes]:
        """The lines that `query` (Kubernetes' PodLogOptions) selects, as they arrive. Raises KeyError, _Cut."""
        since = _since(query)
        stamped = query.get("timestamps") in ("true", "1")
        with self.changed:
            log = self.logs[key]
            cuts = self.cuts
            lines = log.previous if query.get("previous") in ("true", "1") else log.lines
            chosen = [number for number, (when, _) in enumerate(lines) if since is None or when >= since]
            tail = int(query["tailLines"]) if "tailLines" in query else len(chosen)
            chosen = chosen[len(chosen) - min(tail, len(chosen)) :]
            upto = len(lines)
            ready = [_line(*lines[number], stamped) for number in chosen]
        yield from ready
        while query.get("follow") in ("true", "1"):
            with self.changed:
                # A restarted container has a new list. The stream of the old one ends, as from a kubelet.
                while len(lines) == upto and lines is log.lines and self.cuts == cuts:
                    if log.ended or self.closing:
                        return
                    self.changed.wait()
                if self.cuts > cuts:
                    raise _Cut
                ready = [_line(*entry, stamped) for entry in lines[upto:]]
                upto = len(lines)
                last = lines is not log.lines
            yield from ready
            if last:
                return


class _Cut(Exception):
    """The connection is cut."""


def _since(query: dict[str, str]) -> datetime.datetime | None:
    if "sinceTime" in query:
        return datetime.datetime.fromisoformat(query["sinceTime"])
    if "sinceSeconds" in query:
        return datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=int(query["sinceSeconds"]))
    return None


def _line(when: datetime.datetime, line: str, stamped: bool) -> bytes:
    stamp = when.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z ") if stamped else ""
    return f"{stamp}{line}\n".encode()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    logs: LogServer
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        # This runs in the thread of one connection, so a handshake that hangs does not block other connections.
        with self.context.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        what, *parts = url.path.strip("/").split("/")
        if what == "exec" and len(parts) == 3:
            self._execute((parts[0], parts[1], parts[2]), parse_qs(url.query).get("command", []))
            return
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        if what != "containerLogs" or len(parts) != 3:
            self._send_error(404, f"no such path: {url.path}")
            return
        key = (parts[0], parts[1], parts[2])
        if key not in self.server.logs.logs:
            self._send_error(404, f'container "{key[2]}" in pod "{key[1]}" is not available')
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            for line in self.server.logs.read(key, query):
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
        except _Cut:
            self.close_connection = True  # without the last chunk, the reader sees that the stream is incomplete
            return
        self.wfile.write(b"0\r\n\r\n")

    def _execute(self, key: Key, command: list[str]) -> None:
        """Answer over a websocket, with messages that are shorter than 64 KiB."""
        self.close_connection = True
        accept = hashlib.sha1(f"{self.headers['Sec-WebSocket-Key']}{_WEBSOCKET}".encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accept).decode())
        self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        self.end_headers()
        code, text = self.server.logs.execute(key, command)
        cause = {"reason": "ExitCode", "message": str(code)}
        status = {"status": "Failure", "details": {"causes": [cause]}} if code else {"status": "Success"}
        for channel, content in ((2, text.encode()), (3, json.dumps(status).encode())):
            message = bytes([channel]) + content
            self.wfile.write(struct.pack("!BBH", 0x82, 126, len(message)) + message)
        self.wfile.write(struct.pack("!BB", 0x88, 0))

    def _send_error(self, code: int, message: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(message)))
        self.end_headers()
        self.wfile.write(message.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""
