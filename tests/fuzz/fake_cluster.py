"""An API server that answers with the objects of a case, in this process.

This replaces the real API server of tests/cluster, because that one checks every object against the schemas of the
CRDs. A hostile aggregated API server, or one with the CRDs of an old version, does not. The launcher's own client
(launcher.k8s.client) parses each answer; only the connection is replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

from launcher.k8s.client import Cluster, Response
from launcher.k8s.errors import from_status
from launcher.k8s.kubeconfig import Access

Object = dict[str, Any]

_PATH = re.compile(
    r"/apis?/(?:(?P<group>[^/]+)/)??(?P<version>v[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?P<rest>/.*)?"
)


class _Body:
    """The part of urllib3.HTTPResponse that the client reads."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._left = data

    def read1(self) -> bytes:
        part, self._left = self._left[: 1 << 16], self._left[1 << 16 :]
        return part

    def close(self) -> None:
        pass

    def shutdown(self) -> None:
        pass


class FakeCluster(Cluster):
    """Answers from `documents`: objects by name, `logs` (lines), `jobs` (of Ray), `pending` and `answers` (by path)."""

    def __init__(self, documents: Mapping[str, Any], namespace: str) -> None:
        self.access = Access("https://cluster.invalid", "lab", "lab", "alice", namespace)
        self.context, self.cluster, self.user = "lab", "lab", "alice"
        self.namespace, self.server, self.name = namespace, self.access.server, "the cluster lab"
        self.unreadable: dict[str, None] = {}
        self._documents = documents

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        timeout: float | None = None,
        raw: bool = False,
    ) -> Response:
        answer = self._answer(method, path, dict(query or {}))
        if answer is None:
            status = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "message": f"{path} not found"}
            data = json.dumps(status).encode()
            if raw:
                return Response(404, {"content-type": "application/json"}, cast(Any, _Body(data)))
            raise from_status(404, data, where=self.name, method=method, path=path)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return Response(200, {"content-type": "application/json"}, cast(Any, _Body(data)))

    def _answer(self, method: str, path: str, query: dict[str, str]) -> Any:
        """Return the JSON or the bytes of the answer; None if there is nothing at the path."""
        if path in self._documents.get("answers", {}):
            return self._documents["answers"][path]
        if path.endswith("/pendingworkloads"):
            return self._documents.get("pending")
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        rest = match["rest"] or ""
        if match["plural"] == "pods" and rest == "/log":
            return as_lines(self._documents["logs"])
        if match["plural"] == "services" and "/proxy/" in rest:
            return self._ray(rest.partition("/proxy/")[2])
        found = list(self._objects(match["plural"], match["namespace"]))
        if match["name"]:
            name = unquote(match["name"])
            return next((obj for obj in found if _field(obj, "metadata.name") == name), None)
        return {"kind": "List", "items": [obj for obj in found if _selected(obj, query)]}

    def _ray(self, path: str) -> Any:
        jobs = self._documents["jobs"]
        if path == "api/version":
            return self._documents.get("version")
        if path == "api/jobs/":
            return jobs
        if path.startswith("api/jobs/"):
            one = [job for job in jobs if isinstance(job, dict) and job.get("submission_id") == unquote(path[9:])]
            return one[0] if one else None
        return as_lines(self._documents["logs"]) if path.startswith("api/v0/logs/") else None

    def _objects(self, plural: str, namespace: str | None) -> Iterator[Any]:
        for key, obj in self._documents.items():
            kind, slash, rest = key.partition(" ")
            if slash and _plural(kind) == plural and namespace in (None, rest.rpartition("/")[0]):
                yield obj


def key_of(obj: Object) -> str:
    """Return the name of an object's document: its kind, namespace and name. Mutations do not change it."""
    meta = obj["metadata"]
    return f"{obj['kind']} {meta.get('namespace', '')}/{meta['name']}"


def as_lines(lines: Any) -> bytes:
    """Return a document of lines as bytes. A line that is not text is JSON; \\udcXX in a text is the byte XX."""
    texts = [
        line if isinstance(line, str) else json.dumps(line) for line in (lines if isinstance(lines, list) else [lines])
    ]
    return b"".join(_encoded(text) + b"\n" for text in texts)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _plural(kind: str) -> str:
    lower = kind.lower()
    return (
        f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}es" if lower.endswith(("s", "x", "ch")) else f"{lower}s"
    )


def _selected(obj: Any, query: Mapping[str, str]) -> bool:
    """Return whether the selectors match. An object whose labels cannot be read matches, as the worst case."""
    for part in filter(None, query.get("labelSelector", "").split(",")):
        key, equals, value = part.partition("=")
        labels = _field(obj, "metadata.labels")
        if isinstance(labels, dict) and (labels.get(key) != value if equals else key not in labels):
            return False
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = part.partition("=")
        if isinstance(found := _field(obj, path), str) and found != value:
            return False
    return True


def _field(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj
