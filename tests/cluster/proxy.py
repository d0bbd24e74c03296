"""A proxy before an API server that lets a process get as far as its n-th request, and no further.

    with Proxy(plane) as proxy:
        kubeconfig = proxy.kubeconfig(folder, namespace)
        proxy.stop_at(3, answered=False)   # the third request is not even sent on
        …
        proxy.requests                     # what was asked, in order: "POST /apis/…"

It adds the admin's credentials and speaks plain HTTP to the process. Answers are given whole; it can also give an
answer of its own (`answers`), which a real server gave before (see test_bad_cluster.py).
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
    """Serves on a free port of 127.0.0.1, in threads of this process, until it is closed."""

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
        """A kubeconfig that leads here, without credentials."""
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
        """Call `stop` at that request, counted from 1: before it is sent on, or with `answered` after the server has
        done what it says, and before the answer is given. From then on nothing is let through."""
        with self._lock:
            self.requests, self._stop_at, self._answered, self._stop = [], request, answered, stop

    def let_all_through(self) -> None:
        self.stop_at(0, answered=False, stop=lambda: None)

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
        made_up = self.answers(handler.command, urlsplit(handler.path).path)
        status, data, kind = (made_up[0], made_up[1], "text/plain") if made_up else _ask(self, handler)
        if number == last:
            handler.close_connection = True
            self._stop()
            return
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


def _ask(proxy: Proxy, handler: _Handler) -> tuple[int, bytes, str]:
    """What the API server says to it."""
    api: Api = proxy.plane.api
    length = int(handler.headers.get("Content-Length") or 0)
    body = json.loads(handler.rfile.read(length)) if length else None
    answer = api.open(handler.command, handler.path, body, handler.headers.get("Content-Type") or "application/json")
    return answer.status, answer.data, answer.headers.get("Content-Type", "")


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    proxy: Proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is no error."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def _any(self) -> None:
        self.server.proxy.pass_on(self)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _any  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Quiet."""
