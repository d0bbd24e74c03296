"""A proxy for an API server that can stop a process at its n-th request.

    with Proxy(plane) as proxy:
        kubeconfig = proxy.kubeconfig(folder, namespace)
        proxy.stop_at(3, answered=False)   # the third request is not sent to the server
        …
        proxy.requests                     # the requests in order: "POST /apis/…"

It adds the admin's credentials, and the process connects to it with plain HTTP. It does not stream answers. It can also
return its own answers (`answers`), copied from a real server (see test_bad_cluster.py).
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane

Answer = tuple[int, bytes]


class Proxy:
    """Serves on a free port of 127.0.0.1, in threads of this process, while it is open."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.requests: list[str] = []
        self.answers: Callable[[str, str], Answer | None] = lambda _method, _path: None
        self._lock = threading.Lock()
        self._stop_at = 0
        self._answered = False
        self._stop: Callable[[], None] = lambda: None
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def kubeconfig(self, folder: Path, namespace: str) -> Path:
        """Write a kubeconfig for the proxy, without credentials."""
        context = {"cluster": "proxied", "user": "nobody", "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxied", "cluster": {"server": f"http://127.0.0.1:{self._server.server_port}"}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "proxied", "context": context}],
            "current-context": "proxied",
        }
        file = folder / "proxied.kubeconfig"
        file.write_text(json.dumps(config))
        return file

    def stop_at(self, request: int, *, answered: bool, stop: Callable[[], None]) -> None:
        """Call `stop` at that request, counted from 1, and reject all later requests.

        answered: call it after the server has processed the request, before the answer is returned; if not, before the
        request is sent to the server.
        """
        with self._lock:
            self.requests, self._stop_at, self._answered, self._stop = [], request, answered, stop

    def pass_on(self, handler: _Handler) -> None:
        """Answer one request."""
        with self._lock:
            self.requests.append(f"{handler.command} {handler.path}")
            number = len(self.requests)
            last, answered = self._stop_at, self._answered
        if last and (number > last or (number == last and not answered)):
            handler.close_connection = True
            if number == last:
                self._stop()
            return
        own = self.answers(handler.command, urlsplit(handler.path).path)
        status, data, kind = (own[0], own[1], "text/plain") if own else _forward(self, handler)
        if number == last:
            handler.close_connection = True
            self._stop()
            return
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


def _forward(proxy: Proxy, handler: _Handler) -> tuple[int, bytes, str]:
    """The API server's answer to the request: status, body, content type."""
    api: Api = proxy.plane.api
    length = int(handler.headers.get("Content-Length") or 0)
    body = json.loads(handler.rfile.read(length)) if length else None
    kind, accept = (handler.headers.get(name) or "application/json" for name in ("Content-Type", "Accept"))
    answer = api.open(handler.command, handler.path, body, kind, accept=accept)
    return answer.status, answer.data, answer.headers.get("Content-Type", "")


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    proxy: Proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that were killed."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def _any(self) -> None:
        self.server.proxy.pass_on(self)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _any  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Print nothing."""
