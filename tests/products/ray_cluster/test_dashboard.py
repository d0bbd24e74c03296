"""Attacks on the port of `launcher dashboard`. cluster/test_ray_cluster_runs.py has a real one."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from launcher.k8s import kubeconfig
from launcher.k8s.client import Cluster
from launcher.products.ray_cluster.dashboard import DashboardServer, opened
from tests.prerequisites import require

NOBODY = 65534
RAY_CLUSTER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "c", "namespace": "research"},
    "spec": {"headGroupSpec": {"template": {"spec": {"containers": []}}}},
}
# A hostile head sends these headers to stay in the browser after its dashboard is closed.
HOSTILE = {
    "Content-Type": "text/javascript",
    "Cache-Control": "max-age=31536000, immutable",
    "ETag": '"1"',
    "Last-Modified": "Sat, 21 Nov 2026 06:24:38 GMT",
    "Expires": "Sun, 21 Nov 2027 06:24:38 GMT",
    "Age": "1",
    "Service-Worker-Allowed": "/",
    "Clear-Site-Data": '"cookies"',
    "Set-Cookie": "slipway-8265=mine",
    "Access-Control-Allow-Origin": "*",
    "Alt-Svc": 'h2="evil.example:443"',
    "X-Other": "1",
}


class ApiServer(http.server.BaseHTTPRequestHandler):
    """Answers for the API server and for a hostile head behind it, and records the requests to the head.

    It replaces the real API server, which does not show the headers that it received.
    """

    requests: ClassVar[list[tuple[str, dict[str, str]]]] = []

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "/proxy/" not in self.path:
            data, headers = json.dumps(RAY_CLUSTER).encode(), {"Content-Type": "application/json"}
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.requests.append((f"{self.command} /{self.path.partition('/proxy/')[2]}", headers))
            data, headers = b'{"ray_version": "2.60.0"}', HOSTILE
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The file of a kubeconfig for an ApiServer."""
    monkeypatch.setattr(ApiServer, "requests", [])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server, served(server):
        config = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "alice", "namespace": "research"}}],
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
            "users": [{"name": "alice", "user": {"as": "alice"}}],
        }
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(file))
        yield str(file)


@contextlib.contextmanager
def served(server: http.server.HTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


@pytest.fixture
def listening(api_server: str) -> Iterator[DashboardServer]:
    """A dashboard whose port accepts connections, and whose requests wait for `served`."""
    with opened(Cluster(kubeconfig.load()), "c") as (_, server):
        ApiServer.requests.clear()  # the check that Ray answers
        yield server


@pytest.fixture
def dashboard(listening: DashboardServer) -> Iterator[DashboardServer]:
    with served(listening):
        yield listening


def fetch(server: DashboardServer, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, str]:
    """Return the status, the headers and the text of an answer. In names of headers, _ is -."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def cookie_of(server: DashboardServer) -> str:
    return f"slipway-{server.port}={server.token}"


def test_the_address_is_exchanged_for_a_cookie_of_this_port(dashboard: DashboardServer) -> None:
    assert len(dashboard.token) >= 40
    assert dashboard.url == f"http://127.0.0.1:{dashboard.port}/?token={dashboard.token}"
    status, headers, text = fetch(dashboard, dashboard.url.removeprefix(dashboard.address), Sec_Fetch_Site="none")
    assert (status, headers["Location"], text) == (303, "/", "")
    assert headers["Set-Cookie"] == f"{cookie_of(dashboard)}; Path=/; HttpOnly; SameSite=Strict"
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    assert ApiServer.requests == []
    both = f"other=1; {cookie_of(dashboard)}; slipway-1=x"
    assert fetch(dashboard, "/api/version?a=b", Cookie=both)[0] == 200
    assert fetch(dashboard, "/api/version", Authorization=f"Bearer {dashboard.token}")[0] == 200
    assert [request for request, _ in ApiServer.requests] == ["GET /api/version?a=b", "GET /api/version"]
    assert dashboard.token not in str(ApiServer.requests)


def test_no_request_without_the_token_reaches_ray(dashboard: DashboardServer) -> None:
    with opened(Cluster(kubeconfig.load()), "c") as (_, other):
        ApiServer.requests.clear()  # the check that Ray answers
    cookies = [cookie_of(other), f"slipway-{dashboard.port}={other.token}", f"{cookie_of(dashboard)}x", dashboard.token]
    cookies.append(f"slipway-{dashboard.port}=")
    logins = [f"Bearer {other.token}", f"Basic {dashboard.token}", "Bearer \xe9", "Bearer"]
    for headers in ({}, *({"Cookie": each} for each in cookies), *({"Authorization": each} for each in logins)):
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            status, _, text = fetch(dashboard, "/api/jobs/", method, **headers)
            assert status == 401, (method, headers)
            assert method == "HEAD" or "launcher dashboard printed" in text
    # The token in a path other than that of the printed address, or in another method's.
    for method, path in (("GET", "/api/jobs/?token="), ("POST", "/?token="), ("GET", "/?token=x")):
        assert fetch(dashboard, f"{path}{dashboard.token}", method)[0] == 401
    assert ApiServer.requests == []


def test_pages_of_other_origins_do_not_reach_ray(dashboard: DashboardServer) -> None:
    own = {"Cookie": cookie_of(dashboard)}
    assert fetch(dashboard, "/", **own, Host="evil.example")[0] == 421
    for origin in (
        "http://evil.example",
        "null",
        f"https://127.0.0.1:{dashboard.port}",
        "http://127.0.0.1:1",
        "http://[",
    ):
        assert fetch(dashboard, "/", **own, Origin=origin)[0] == 403, origin
    for site in ("cross-site", "same-site"):
        assert fetch(dashboard, "/", **own, Sec_Fetch_Site=site)[0] == 403
        assert fetch(dashboard, f"/?token={dashboard.token}", Sec_Fetch_Site=site)[0] == 403
    for path in ("/static/../../pods", "/static/%2e%2e/pods", "/static/%252e%252e/pods", "/a#/../b", "x"):
        assert fetch(dashboard, path, **own)[0] == 400, path
    assert ApiServer.requests == []


def test_a_hostile_head_leaves_nothing_in_the_browser(dashboard: DashboardServer) -> None:
    """Its service worker or cached script would run in a later dashboard with the same port."""
    own = {"Cookie": cookie_of(dashboard)}
    assert fetch(dashboard, "/static/js/worker.js", **own, Service_Worker="script")[0] == 403
    assert ApiServer.requests == []
    status, headers, _ = fetch(dashboard, "/static/js/main.js", **own, If_None_Match='"1"')
    assert (status, headers["Cache-Control"], headers["Content-Type"]) == (200, "no-store", "text/javascript")
    assert sorted(name.lower() for name in headers) == [
        "cache-control",
        "connection",
        "content-length",
        "content-type",
        "date",
        "server",
    ]
    assert "if-none-match" not in ApiServer.requests[0][1]


def test_the_api_server_gets_only_known_headers(dashboard: DashboardServer) -> None:
    """It acts on the headers with the user's rights, and the head gets what remains."""
    passed = {
        "accept": "a/b",
        "content-type": "c/d",
        "range": "bytes=0-1",
        "user-agent": "Mozilla",
        "sec-fetch-mode": "cors",
    }
    passed |= {"origin": dashboard.address, "referer": f"{dashboard.address}/", "sec-fetch-site": "same-origin"}
    dropped = {
        "Impersonate-User": "system:admin",
        "Impersonate-Group": "system:masters",
        "Impersonate-Uid": "0",
        "Impersonate-Extra-scopes": "x",
        "X-Remote-User": "system:admin",
        "X-Forwarded-For": "10.0.0.1",
        "X-Ray-Authorization": "Bearer other",
        "Accept-Encoding": "gzip",
        "Authorization": f"Bearer {dashboard.token}",
        "Cookie": cookie_of(dashboard),
    }
    assert fetch(dashboard, "/api/version", **passed, **dropped)[0] == 200
    ((_, headers),) = ApiServer.requests
    sent = {"accept-encoding": "identity", "impersonate-user": "alice", **passed}
    assert headers == {**sent, "host": headers["host"]}


def test_another_user_of_this_machine_is_refused_even_with_the_token(dashboard: DashboardServer) -> None:
    require(os.getuid() == 0, "The test sends a request as another user. Run it as root.")
    assert attack(dashboard, "cat <&3") == ""
    assert ApiServer.requests == []


def test_another_user_who_closes_the_socket_is_refused_even_with_the_token(listening: DashboardServer) -> None:
    """The kernel reports the uid 0 for a closed socket. The attacker delays the check by many connections."""
    require(os.getuid() == 0, "The test sends a request as another user. Run it as root.")
    attack(listening, "")
    deadline = time.monotonic() + 30
    while (rows := clients(listening.port)) == [] or rows[0][1] != 0:
        assert time.monotonic() < deadline, rows
        time.sleep(0.01)
    assert rows[0][0] != "01"  # no longer established
    with served(listening):
        # The first connection is accepted before this one.
        assert fetch(listening, "/api/version", Cookie=cookie_of(listening))[0] == 200
        time.sleep(0.1)
    assert [request for request, _ in ApiServer.requests] == ["GET /api/version"]


def attack(server: DashboardServer, then: str) -> str:
    """Send a complete POST with the token as another user, run `then`, and close the socket. Return the output."""
    lines = ("POST /api/jobs/ HTTP/1.0", f"Host: 127.0.0.1:{server.port}", f"Cookie: {cookie_of(server)}")
    request = "".join(f"{line}\\r\\n" for line in (*lines, "Content-Length: 2", "")) + "{}"
    script = f"exec 3<>/dev/tcp/127.0.0.1/{server.port} && printf '{request}' >&3; {then}"
    done = subprocess.run(
        ["bash", "-c", script], user=NOBODY, cwd="/", capture_output=True, text=True, timeout=30, check=False
    )
    assert "denied" not in done.stderr
    return done.stdout


def clients(port: int) -> list[tuple[str, int]]:
    """Return the state and the uid of each connection to the port, at the client's end."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [(row[3], int(row[7])) for row in rows if row[2] == f"0100007F:{port:04X}"]
