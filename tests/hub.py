"""A server on this machine that answers the requests of huggingface_hub like Hugging Face's hub.

It replaces the hub, which the tests cannot reach. Files are uploaded with Git LFS's protocol, as to a hub without Xet.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_the_tests"


@dataclass
class DataSet:
    """A data set: its commits with their files, its branches, and the start of its card."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)
    private: bool = False
    gated: bool = False

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """Replace the files of a branch, and return the commit."""
        name = hashlib.sha1(repr(sorted(files.items())).encode(), usedforsecurity=False).hexdigest()
        self.commits[name] = files
        self.branches[branch] = name
        return name


@dataclass
class Hub:
    """The repositories by name: the files of each, whether it is private, and the number of commits."""

    url: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)  # uploaded, by SHA-256, and in no repository yet
    fail_uploads: bool = False
    downloaded: list[str] = field(default_factory=list)
    data: dict[str, DataSet] = field(default_factory=dict)
    ranges: list[str] = field(default_factory=list)  # the parts of files of data sets that were read
    down: bool = False  # the files of data sets cannot be read
    pause: threading.Event = field(default_factory=threading.Event)  # cleared: a download stops after its first half


@contextmanager
def hub() -> Iterator[Hub]:
    """Yield a hub without repositories. TOKEN may write all of them."""
    state = Hub()
    state.pause.set()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._download(body=False)

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if path.removeprefix("/api").startswith("/datasets/"):
                self._data_set(path.removeprefix("/api").removeprefix("/datasets/"))
                return
            name, tree, _ = path.removeprefix("/api/models/").partition("/tree/")
            revision = name.removesuffix("/revision/main")
            if path == "/api/whoami-v2":
                self._authorized({"name": "tests", "orgs": []})
            elif "/resolve/" in path:
                self._download(body=True)
            elif revision != name and self._may_read(revision):
                names = [{"rfilename": file} for file in state.files[revision]]
                self._json({"id": revision, "sha": "0" * 40, "private": False, "siblings": names})
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

        def _data_set(self, path: str) -> None:
            org, name, *rest = path.split("/", 3)
            data = state.data.get(f"{org}/{name}")
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            if data is None or (data.private and not known):
                self._error(401, "RepoNotFound")
                return
            what, _, after = "/".join(rest).partition("/")
            revision = next(
                (each for each in (*data.branches, *data.commits) if f"{after}/".startswith(f"{each}/")), ""
            )
            commit = data.branches.get(revision or "main", revision)
            if after and not revision:
                self._error(404, "RevisionNotFound")
            elif what == "tree":
                self._json(
                    [
                        {"type": "file", "path": file, "oid": "0" * 40, "size": len(content)}
                        for file, content in data.commits[commit].items()
                    ]
                )
            elif what != "resolve":
                self._json({"id": f"{org}/{name}", "sha": commit, "siblings": [], "cardData": data.card})
            elif state.down:
                self._error(501, "")
            elif data.gated and not known:
                self._error(403, "GatedRepo")
            else:
                first, last = self.headers["Range"].removeprefix("bytes=").split("-")
                state.ranges.append(f"{after} {first}-{last}")
                self._send(206, data.commits[commit][after.removeprefix(f"{revision}/")][int(first) : int(last) + 1])

        def _may_read(self, name: str) -> bool:
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            return name in state.files and (known or not state.private.get(name))

        def _download(self, *, body: bool) -> None:
            name, _, file = urlsplit(self.path).path.lstrip("/").partition("/resolve/")
            file = file.partition("/")[2]
            if not self._may_read(name) or file not in state.files[name]:
                self._error(404, "EntryNotFound" if self._may_read(name) else "RepoNotFound")
                return
            content = state.files[name][file]
            headers = {"X-Repo-Commit": "0" * 40, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
            if not body:
                self._send(200, b"", {**headers, "Content-Length": str(len(content))})
                return
            state.downloaded.append(file)
            half = len(content) // 2 if file.endswith("tensors") else 0
            self._send(200, content[:half], {**headers, "Content-Length": str(len(content))})
            if half:
                self.wfile.flush()
                state.pause.wait()
            with suppress(ConnectionError):  # the test has killed the client
                self.wfile.write(content[half:])

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
