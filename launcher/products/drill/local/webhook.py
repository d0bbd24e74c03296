"""A webhook on loopback that receives the notifications of the runs of a drill."""

from __future__ import annotations

import http.server
import json
import threading
from contextlib import suppress
from typing import Any, Self


class Webhook:
    """Receives notifications of the kind `json`. After `close`, its port refuses connections."""

    def __init__(self) -> None:
        received: list[dict[str, Any]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), 1 << 16))
                with suppress(ValueError):
                    received.append(json.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._received = received
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"json http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def events(self, run: str) -> list[str]:
        """Return the events of a run, in the order of their arrival."""
        return [str(message.get("event")) for message in self._received if message.get("run") == run]

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
