"""A server on this machine that answers the requests of gcsfs like Cloud Storage.

It replaces Cloud Storage, which needs an account.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

_OBJECT = "/download/storage/v1/b/"
_LIST = "/storage/v1/b/"
_UPLOAD = "/upload/storage/v1/b/"
_DENIED = (
    "me@example.com does not have storage.objects.get access to the Google Cloud Storage object. "
    "Permission 'storage.objects.get' denied on resource (or it may not exist)."
)


@contextmanager
def bucket(folder: Path, status: int = 200) -> Iterator[str]:
    """Yield the URL of a server whose buckets are the folders in `folder`. With another status it only fails."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path.startswith(_LIST) and status == 200:
                name, _, key = path.removeprefix(_LIST).partition("/o")
                self._list(name) if not key else self._respond(404, b"{}")  # no test asks for an object's metadata
                return
            assert path.startswith((_OBJECT, _LIST)), self.path
            name, _, key = path.removeprefix(_OBJECT).partition("/o/")
            file = folder / name / unquote(key)
            if status != 200:
                self._respond(status, json.dumps({"error": {"code": status, "message": _DENIED}}).encode())
            elif file.is_file():
                self._respond(200, file.read_bytes())
            else:
                self._respond(404, b"Not Found")

        def do_POST(self) -> None:
            """A simple upload: metadata and content as the two parts of one body."""
            path = urlsplit(self.path).path
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert path.startswith(_UPLOAD), self.path
            if status != 200:
                self._respond(status, json.dumps({"error": {"code": status, "message": _DENIED}}).encode())
                return
            _, metadata, content = body.split(b"--==0==\n", 2)
            about = json.loads(metadata.partition(b"\n\n")[2])
            file = folder / path.removeprefix(_UPLOAD).partition("/")[0] / about["name"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.partition(b"\n\n")[2].removesuffix(b"\n--==0==--"))
            self._respond(200, json.dumps({**about, "size": str(file.stat().st_size)}).encode())

        def _list(self, name: str) -> None:
            query = parse_qs(urlsplit(self.path).query)
            prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
            files = {
                str(file.relative_to(folder / name)): file for file in (folder / name).rglob("*") if file.is_file()
            }
            items = [
                {"name": key, "size": str(file.stat().st_size), "bucket": name, "updated": "2026-01-02T03:04:05Z"}
                for key, file in sorted(files.items())
                if key.startswith(prefix) and not (delimiter and delimiter in key.removeprefix(prefix))
            ]
            below = [key.removeprefix(prefix) for key in files if key.startswith(prefix)] if delimiter else []
            prefixes = sorted({prefix + key.partition("/")[0] + "/" for key in below if "/" in key})
            about = {"kind": "storage#objects", "items": items, "prefixes": prefixes}
            self._respond(200, json.dumps(about).encode())

        def _respond(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
