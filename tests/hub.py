"""A server on this machine that answers the requests of huggingface_hub like Hugging Face's hub.

It replaces the hub, which the tests cannot reach. Files are uploaded with Git LFS's protocol, as to a hub without Xet.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

TOKEN = "hf_of_the_tests"


@dataclass
class Hub:
    """The repositories by name: the files of each, whether it is private, and the number of commits."""

    url: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)  # uploaded, by SHA-256, and in no repository yet
    fail_uploads: bool = False


@contextmanager
def hub() -> Iterator[Hub]:
    """Yield a hub without repositories. TOKEN may write all of them."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            name, tree, _ = path.removeprefix("/api/models/").partition("/tree/")
            if path == "/api/whoami-v2":
                self._authorized({"name": "tests", "orgs": []})
            elif name in state.files and tree:
                self._json([{"type": "file", "path": file, "oid": "0" * 40, "size": 1} for file in state.files[name]])
            elif name in state.files:
                names = [{"rfilename": file} for file in state.files[name]]
                self._json({"id": name, "private": state.private[name], "siblings": names})
            else:
                self._error(404, "RepoNotFound")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = urlsplit(self.path).path
            name = "/".join(path.removeprefix("/api/models/").split("/")[:2])
            if path == "/api/repos/create":
                asked = json.loads(body)
                made = f"{asked.get('organization') or 'tests'}/{asked['name']}"
                state.files.setdefault(made, {})
                state.private.setdefault(made, asked.get("visibility") == "private")
                self._authorized({"url": f"{state.url}/{made}", "id": made})
            elif path == "/api/validate-yaml":
                self._json({"errors": [], "warnings": []})
            elif "/preupload/" in path:
                files = [
                    {
                        "path": each["path"],
                        "uploadMode": "lfs" if each["path"].endswith("tensors") else "regular",
                        "shouldIgnore": False,
                    }
                    for each in json.loads(body)["files"]
                ]
                self._authorized({"files": files})
            elif path.endswith(".git/info/lfs/objects/batch"):
                objects = [
                    {**each, "actions": {"upload": {"href": f"{state.url}/upload/{each['oid']}"}}}
                    for each in json.loads(body)["objects"]
                ]
                self._authorized({"transfer": "basic", "objects": objects})
            elif "/commit/" in path:
                self._commit(name, [json.loads(line) for line in body.splitlines() if line.strip()])
            else:
                self._error(404, "EntryNotFound")

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if state.fail_uploads:
                self._error(403, "")
                return
            state.large[urlsplit(self.path).path.removeprefix("/upload/")] = body
            self._send(200, b"")

        def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
            for line in lines:
                value = line["value"]
                if line["key"] == "file":
                    state.files[name][value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    state.files[name][value["path"]] = state.large[value["oid"]]
            state.commits[name] = state.commits.get(name, 0) + 1
            url = f"{state.url}/{name}/commit/{'0' * 40}"
            self._authorized({"commitUrl": url, "commitOid": "0" * 40, "success": True, "hookOutput": ""})

        def _authorized(self, content: Any) -> None:
            if self.headers.get("Authorization") == f"Bearer {TOKEN}":
                self._json(content)
            else:
                self._error(401, "")

        def _json(self, content: Any) -> None:
            self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

        def _error(self, code: int, kind: str) -> None:
            self._send(code, b"", {"X-Error-Code": kind} if kind else {})

        def _send(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(code)
            for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
