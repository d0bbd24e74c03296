"""Requests to an API server with a deadline: no answer, a slow one, an overloaded server, and no time left."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.k8s import client
from launcher.k8s.client import Cluster, ClusterError
from launcher.k8s.errors import DeadlineExceeded

LIST = b'{"items": [{"metadata": {"name": "a", "uid": "1"}, "spec": {}}], "metadata": {}}'
SECONDS = 0.5
Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    answer: Answer

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that have closed the connection."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.answer(self)

    do_POST = do_GET  # noqa: N815 - http.server's name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Print nothing."""


def whole(handler: http.server.BaseHTTPRequestHandler, status: int = 200, data: bytes = LIST, **headers: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data)))
    for key, value in headers.items():
        handler.send_header(key.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as found:
        found.answer = whole
        thread = threading.Thread(target=found.serve_forever, args=(0.02,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def cluster(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    file = tmp_path / "kubeconfig"
    file.write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{server.server_port}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""
    )
    monkeypatch.setenv("KUBECONFIG", str(file))
    return client.connect()


def exceeded_after(cluster: Cluster) -> float:
    """Return the seconds until the request fails."""
    started = time.monotonic()
    cluster.deadline = started + SECONDS
    with pytest.raises(DeadlineExceeded):
        cluster.list(client.COHORT)
    return time.monotonic() - started


def test_an_answer_in_time(server: Server, cluster: Cluster) -> None:
    without = cluster.list(client.COHORT)
    cluster.deadline = time.monotonic() + 30
    assert cluster.list(client.COHORT) == without
    assert without[0]["metadata"]["name"] == "a"
    status = b'{"kind": "Status", "reason": "Forbidden", "message": "cohorts.kueue.x-k8s.io is forbidden: no"}'
    server.answer = lambda handler: whole(handler, 403, status)
    with pytest.raises(ClusterError, match="no") as refused:
        cluster.list(client.COHORT)
    assert refused.value.status == 403


def test_no_answer(server: Server, cluster: Cluster) -> None:
    release = threading.Event()

    def never(_: http.server.BaseHTTPRequestHandler) -> None:
        release.wait(30)

    server.answer = never
    seconds = exceeded_after(cluster)
    release.set()
    assert seconds < 5


def test_an_answer_that_arrives_slowly(server: Server, cluster: Cluster) -> None:
    """Each part arrives in time for the timeout of a read, and the whole never does."""

    def slowly(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        for _ in range(600):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)

    server.answer = slowly
    assert exceeded_after(cluster) < 5


def test_an_overloaded_server(server: Server, cluster: Cluster) -> None:
    server.answer = lambda handler: whole(handler, 429, b"", Retry_After="5")
    assert exceeded_after(cluster) < 4


def test_no_time_is_left(server: Server, cluster: Cluster) -> None:
    asked: list[http.server.BaseHTTPRequestHandler] = []
    server.answer = asked.append
    cluster.deadline = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        cluster.list(client.COHORT)
    assert asked == []


def test_another_namespace_has_the_same_deadline(cluster: Cluster) -> None:
    cluster.deadline = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        cluster.in_namespace("other").list(client.COHORT)
    assert (cluster.namespace, cluster.in_namespace("other").cli_args) == ("default", " -n other")


def test_the_number_of_objects(server: Server, cluster: Cluster) -> None:
    assert cluster.count(client.COHORT) == 1
    more = LIST.replace(b'"metadata": {}}', b'"metadata": {"continue": "x", "remainingItemCount": 41}}')
    server.answer = lambda handler: whole(handler, data=more)
    assert cluster.count(client.COHORT) == 42
    server.answer = lambda handler: whole(handler, data=more.replace(b', "remainingItemCount": 41', b""))
    assert cluster.count(client.COHORT) is None


MESSAGE = (
    'Operation cannot be fulfilled on resourcequotas "runs": the object has been modified; please apply your changes to'
    " the latest version and try again"
)
CONFLICT = json.dumps({"kind": "Status", "code": 409, "reason": "Conflict", "message": MESSAGE}).encode()


def test_a_create_that_conflicts_in_a_quota_is_repeated(
    server: Server, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real API server answers this only if several clients create objects at the same moment."""
    monkeypatch.setattr(client, "_WAITS_FOR_QUOTA", (0.0, 0.0))
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}
    conflicts = 2
    requests = 0

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        nonlocal requests
        requests += 1
        if requests <= conflicts:
            whole(handler, 409, CONFLICT, Content_Type="application/json")
        else:
            whole(handler, 201, b'{"metadata": {"name": "a"}}')

    server.answer = answer
    assert cluster.create(obj)["metadata"]["name"] == "a"
    assert requests == 3
    conflicts, requests = 9, 0
    with pytest.raises(client.Conflict, match="resourcequotas"):
        cluster.create(obj)
    assert requests == 3
