"""Ray's dashboard on a local port: each request is forwarded through the API server, with Ray's token added.

A client of that port acts with the user's own rights. The port therefore accepts connections on loopback only, only
from this user's own processes if the system reports their owner (Linux), and no cross-site requests of a browser.
Plain HTTP only, which is sufficient for Ray's dashboard; websockets (`ray job logs --follow`) are refused.
"""

from __future__ import annotations

import contextlib
import errno
import http.server
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from launcher.backends.ray_cluster import clusters as ray_clusters
from launcher.backends.ray_cluster.backend import RayClusterBackend
from launcher.backends.ray_cluster.jobs import TOKEN_HEADER, RayHead, RayJobs
from launcher.config.suggest import closest, join_or
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import RAY_CLUSTER, RAY_JOB, Cluster, Forbidden, Unreachable
from launcher.k8s.errors import ClusterError
from launcher.k8s.objects import Object

_LOOPBACK = "127.0.0.1"
# Ray's limit for a body (DASHBOARD_CLIENT_MAX_SIZE), which a job's working directory may reach.
_BODY_LIMIT = 100 << 20
# Headers of one connection (RFC 9110, 7.6.1), headers that the launcher sets, and headers of another login.
_NOT_PASSED_ON = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"),
    *("upgrade", "host", "authorization", TOKEN_HEADER, "cookie", "set-cookie", "accept-encoding", "content-length"),
}


def head_of(cluster: Cluster, name: str) -> RayHead:
    """Return the head of NAME, a long-lived Ray cluster or a run.

    Raises LauncherError if NAME has no Ray cluster, or Ray does not answer or refuses the token.
    """
    ray_cluster = _ray_cluster(cluster, name)
    try:
        head = RayHead(cluster, ray_cluster)
        RayJobs(head).version()  # check that it answers and accepts the token
    except Forbidden as error:
        if not objects.label(ray_cluster, label_keys.RAY_ORIGIN):
            raise
        raise _not_for_members(error, cluster, name) from error
    return head


def _not_for_members(error: Forbidden, cluster: Cluster, run: str) -> Forbidden:
    """Return the error for a RayJob's cluster, which has a new name in each attempt: no Role can name its Secret."""
    return Forbidden(
        f'{error.message.partition(", and the Secret")[0].rstrip(".")}: the Ray cluster of the run "{run}", its '
        "Service and the Secret with its token have new names in each attempt, so members' rights do not include them.",
        "A user with rights to all Services and Secrets of the namespace, such as a platform engineer, can open it. "
        f"launcher status {run}{cluster.cli_args} and launcher logs {run}{cluster.cli_args} do not need these rights; "
        "neither does the dashboard of a long-lived Ray cluster.",
        verb=error.verb,
        resource=error.resource,
        group=error.group,
        namespace=error.namespace,
    )


@contextlib.contextmanager
def opened(cluster: Cluster, name: str, port: int = 0) -> Iterator[tuple[str, http.server.ThreadingHTTPServer]]:
    """Yield a local URL with the dashboard of NAME, and its server. The port 0 selects a free port.

    The caller calls `serve_forever`. Raises LauncherError if there is no dashboard, or Ray does not answer.
    """
    head = head_of(cluster, name)

    class Handler(_Handler):
        pass

    Handler.head = head
    try:
        server = http.server.ThreadingHTTPServer((_LOOPBACK, port), Handler)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "is in use" if error.errno == errno.EADDRINUSE else "cannot be used: permission denied"
        raise LauncherError(
            f"The port {port} of this machine {why}.", "Without --port, a free port is used."
        ) from error
    server.daemon_threads = True
    with server:
        yield f"http://{_LOOPBACK}:{server.server_address[1]}", server


def _ray_cluster(cluster: Cluster, name: str) -> Object:
    found = cluster.get(RAY_CLUSTER, name)
    if found is not None:
        return found
    job = cluster.get(RAY_JOB, name)
    if job is not None:
        started = str(objects.status(job).get("rayClusterName") or "")
        found = cluster.get(RAY_CLUSTER, started) if started else None
        if found is None:
            raise LauncherError(
                f'The run "{name}" has no Ray cluster now, so it has no dashboard.',
                f"To show its state: launcher status {name}{cluster.cli_args}. "
                f"To show its output: launcher logs {name}{cluster.cli_args}",
            )
        return found
    backend = RayClusterBackend(cluster)
    of_run = backend.cluster_of(name)
    if of_run is not None:
        return ray_clusters.named(cluster, of_run)
    raise _no_dashboard(name, backend)


def _no_dashboard(name: str, backend: RayClusterBackend) -> LauncherError:
    """Return the error for a NAME without a Ray cluster, with the names that have one."""
    cluster = backend.cluster
    clusters = [objects.name(each) for each in ray_clusters.all_clusters(cluster)]
    runs = [objects.name(each) for each in cluster.list(RAY_JOB) if objects.status(each).get("rayClusterName")]
    near = closest(name, [*clusters, *runs])
    guess = f' Did you mean "{near[0]}"?' if near else ""
    there = (
        [f"Long-lived Ray clusters: {join_or(clusters, 'and')}."]
        if clusters
        else ["No long-lived Ray clusters were found."]
    )
    there += [f"Runs with their own Ray cluster: {join_or(runs, 'and')}."] if runs else []
    return LauncherError(
        f'The Ray cluster "{name}", or a run of that name with one, was not found in the {cluster.description}.{guess}',
        " ".join([*there, f"For a sweep, name one of its runs. To list all: launcher list{cluster.cli_args}"]),
    )


class _Handler(http.server.BaseHTTPRequestHandler):
    head: RayHead
    server_version, sys_version = "slipway", ""
    timeout = 60

    def handle_one_request(self) -> None:
        if not _same_user(self.connection):
            self.close_connection = True
            return
        super().handle_one_request()

    def _pass_on(self) -> None:
        self.close_connection = True
        if refusal := self._refusal():
            self._answer(*refusal)
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED_ON}
        try:
            answer = self.head.request(
                self.command,
                self.path,
                body=body,
                # No compression, so that Content-Length stays correct.
                headers={**headers, "Accept-Encoding": "identity"},
                stream=True,
            )
        except ClusterError as error:
            self._answer(502, f"{error.message}\n{error.hint}".rstrip())
            return
        except LauncherError as error:
            self._answer(500, f"{error.message}\n{error.hint}".rstrip())
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError), contextlib.closing(answer):
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name not in _NOT_PASSED_ON or name == "content-length":
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command == "HEAD":
                return
            # If the response is cut off, it is shorter than its Content-Length, which the browser detects.
            with contextlib.suppress(Unreachable):
                for part in answer.parts():
                    self.wfile.write(part)
                    self.wfile.flush()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _pass_on  # noqa: N815 - http.server's names

    def _refusal(self) -> tuple[int, str] | None:
        port = self.connection.getsockname()[1]
        ours = {f"{_LOOPBACK}:{port}", f"localhost:{port}"}
        if self.headers.get("Host", "").lower() not in ours:
            # Another name that resolves to this machine: a DNS rebinding attack by a web page.
            return 421, f"Ray's dashboard is available only at http://{_LOOPBACK}:{port}."
        origin = self.headers.get("Origin")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") or (
            origin is not None and urlsplit(origin).netloc.lower() not in ours
        ):
            return 403, "Requests of another web page are rejected; open the address of the dashboard."
        if "upgrade" in self.headers.get("Connection", "").lower():
            return 501, "Websockets are not supported. To follow a run's output: launcher logs -f NAME"
        path = urlsplit(self.path).path
        if not self.path.startswith("/") or any(part in (".", "..") for part in _unquoted(path).split("/")):
            # A path that leaves Ray's prefix would reach other paths of the API server.
            return 400, "The path is not a valid path of Ray's dashboard."
        if self.headers.get("Transfer-Encoding"):
            return 411, "A request body needs a Content-Length header."
        length = self.headers.get("Content-Length") or "0"
        if not length.isdigit() or int(length) > _BODY_LIMIT:
            return 413, "Ray accepts at most 100 MiB."
        return None

    def _answer(self, status: int, text: str) -> None:
        data = f"{text}\n".encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Do nothing, to keep requests out of the user's terminal."""


def _unquoted(path: str) -> str:
    """Return the path decoded twice, because a server behind this one may decode it again."""
    return unquote(unquote(path)).replace("\\", "/")


def _same_user(connection: socket.socket) -> bool:
    """Return whether the peer is a process of this user or root; True if the system has no table of connections."""
    table = Path("/proc/net/tcp")
    try:
        rows = table.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return True
    theirs, ours = (_url(*address) for address in (connection.getpeername(), connection.getsockname()))
    for row in rows:
        fields = row.split()
        if fields[1] == theirs and fields[2] == ours:
            return int(fields[7]) in (os.getuid(), 0)
    return False


def _url(host: str, port: int) -> str:
    """Return an address in the format of /proc/net/tcp: the four bytes as a native integer, then the port."""
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    return f"{number:08X}:{port:04X}"
