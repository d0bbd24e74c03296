"""Ray's dashboard on a local port: each request is forwarded through the API server, with Ray's token added.

A client of that port acts with the user's own rights. The port therefore accepts connections on loopback only, only
from this user's own processes if the system reports their owner (Linux), no cross-site requests of a browser, and only
requests with a token that each dashboard generates. A browser gets the token with the address, which sets a cookie and
redirects to the address without the token; other clients send `Authorization: Bearer TOKEN`.

The pages are those of the Ray cluster's members. A browser must not keep them, because another dashboard can later have
the same port: nothing is cached, service workers are refused, and only the headers in the lists below are passed on.
Plain HTTP only, which is sufficient for Ray's dashboard; websockets (`ray job logs --follow`) are refused.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import http.server
import os
import secrets
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlencode

from launcher.config.suggest import closest, join_or
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import RAY_CLUSTER, RAY_JOB, Cluster, Forbidden, Unreachable
from launcher.k8s.errors import ClusterError
from launcher.k8s.objects import Object
from launcher.products.ray_cluster import clusters as ray_clusters
from launcher.products.ray_cluster.backend import RayClusterBackend
from launcher.products.ray_cluster.jobs import RayHead, RayJobs

_LOOPBACK = "127.0.0.1"
_ESTABLISHED = "01"  # TCP_ESTABLISHED in the kernel's tcp_states.h
# Ray's limit for a body (DASHBOARD_CLIENT_MAX_SIZE), which a job's working directory may reach.
_BODY_LIMIT = 100 << 20
# Headers that are passed on to Ray. The API server reads them first, with the user's rights, so Impersonate-User and
# the like are not in the list. By the last two lines, Ray recognizes a browser, and refuses jobs that a page submits.
_TO_RAY = {
    *("accept", "accept-language", "content-type", "range"),
    *("user-agent", "origin", "referer", "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site", "sec-fetch-user"),
    *("access-control-request-headers", "access-control-request-method"),
}
# Headers of Ray's answers that are passed on. Cookies, lifetimes for caches, and rights of service workers are not.
_FROM_RAY = {
    *("content-type", "content-length", "content-disposition", "content-range", "accept-ranges", "location", "allow"),
    *("content-security-policy", "x-content-type-options", "x-frame-options", "x-ray-profiling-warning"),
}


def head_of(cluster: Cluster, name: str) -> RayHead:
    """Return the head of NAME, a long-lived Ray cluster or a run.

    Raises LauncherError if NAME has no Ray cluster, or Ray does not answer or refuses the token.
    """
    ray_cluster = _ray_cluster(cluster, name)
    try:
        head = RayHead(cluster, ray_cluster, named=True)
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


class DashboardServer(http.server.ThreadingHTTPServer):
    """Serves the dashboard of a Ray head at `address`. Each request needs `token`, which is new for each server."""

    def __init__(self, head: RayHead, port: int) -> None:
        super().__init__((_LOOPBACK, port), _Handler)
        self.head = head
        self.port = int(self.server_address[1])
        self.address = f"http://{_LOOPBACK}:{self.port}"
        self.token = secrets.token_urlsafe(32)
        # A browser sends the cookies of a host to all its ports.
        self.cookie = f"slipway-{self.port}"

    @property
    def url(self) -> str:
        """The address for a browser, with the token."""
        return f"{self.address}/?{urlencode({'token': self.token})}"

    def is_token(self, text: str) -> bool:
        """Return whether `text` is the token. The time does not depend on `text`."""
        return hmac.compare_digest(text.encode(), self.token.encode())


@contextlib.contextmanager
def opened(cluster: Cluster, name: str, port: int = 0) -> Iterator[tuple[str, DashboardServer]]:
    """Yield a URL that opens the dashboard of NAME in a browser, and its server. The port 0 selects a free port.

    The caller calls `serve_forever`. Raises LauncherError if there is no dashboard, or Ray does not answer.
    """
    head = head_of(cluster, name)
    try:
        server = DashboardServer(head, port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "is in use" if error.errno == errno.EADDRINUSE else "cannot be used: permission denied"
        raise LauncherError(
            f"The port {port} of this machine {why}.", "Without --port, a free port is used."
        ) from error
    with server:
        yield server.url, server


def _ray_cluster(cluster: Cluster, name: str) -> Object:
    obj = cluster.get(RAY_CLUSTER, name)
    if obj is not None:
        return obj
    job = cluster.get(RAY_JOB, name)
    if job is not None:
        started = str(objects.status(job).get("rayClusterName") or "")
        obj = cluster.get(RAY_CLUSTER, started) if started else None
        if obj is None:
            raise LauncherError(
                f'The run "{name}" has no Ray cluster now, so it has no dashboard.',
                f"To show its state: launcher status {name}{cluster.cli_args}. "
                f"To show its output: launcher logs {name}{cluster.cli_args}",
            )
        return obj
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
    server: DashboardServer
    server_version, sys_version = "slipway", ""
    timeout = 60

    def handle_one_request(self) -> None:
        if not _same_user(self.connection):
            self.close_connection = True
            return
        super().handle_one_request()

    def _pass_on(self) -> None:
        self.close_connection = True
        if refusal := self._foreign():
            self._answer(*refusal)
            return
        if self._opens():
            self._set_cookie()
            return
        if not self._has_token():
            address = self.server.address
            self._answer(
                401,
                f"{address} needs the token that launcher dashboard printed: open the printed address, or send the "
                "header Authorization: Bearer TOKEN.",
            )
            return
        if refusal := self._not_supported():
            self._answer(*refusal)
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        headers = {name: value for name, value in self.headers.items() if name.lower() in _TO_RAY}
        try:
            answer = self.server.head.request(
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
            self._start(answer.status, {name: value for name, value in answer.headers.items() if name in _FROM_RAY})
            if self.command == "HEAD":
                return
            # If the response is cut off, it is shorter than its Content-Length, which the browser detects.
            with contextlib.suppress(Unreachable):
                for part in answer.parts():
                    self.wfile.write(part)
                    self.wfile.flush()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _pass_on  # noqa: N815 - http.server's names

    def _foreign(self) -> tuple[int, str] | None:
        """Return the refusal of a request that comes from another web page, or that outlives its page."""
        port = self.server.port
        hosts = {f"{_LOOPBACK}:{port}", f"localhost:{port}"}
        if self.headers.get("Host", "").lower() not in hosts:
            # Another name that resolves to this machine: a DNS rebinding attack by a web page.
            return 421, f"Ray's dashboard is available only at {self.server.address}."
        origin = self.headers.get("Origin")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") or (
            origin is not None and origin.lower() not in {f"http://{host}" for host in hosts}
        ):
            return 403, "Requests of another web page are rejected; open the address of the dashboard."
        if self.headers.get("Service-Worker") is not None:
            # The browser would keep it, and run it in all later dashboards with this port.
            return 403, "Service workers are rejected."
        return None

    def _opens(self) -> bool:
        """Return whether the request is for the address that the command printed."""
        path, _, query = self.path.partition("?")
        offered = parse_qs(query).get("token") or [""]
        return self.command == "GET" and path == "/" and self.server.is_token(offered[0])

    def _set_cookie(self) -> None:
        """Redirect to the address without the token, so that no page has an address with it."""
        cookie = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
        headers = {"Location": "/", "Set-Cookie": cookie, "Referrer-Policy": "no-referrer", "Content-Length": "0"}
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._start(303, headers)

    def _has_token(self) -> bool:
        cookies = ";".join(self.headers.get_all("Cookie") or []).split(";")
        pairs = (each.strip().partition("=") for each in cookies)
        offered = [value for name, _, value in pairs if name == self.server.cookie]
        scheme, _, bearer = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            offered.append(bearer.strip())
        return any(self.server.is_token(each) for each in offered)

    def _not_supported(self) -> tuple[int, str] | None:
        if "upgrade" in self.headers.get("Connection", "").lower():
            return 501, "Websockets are not supported. To follow a run's output: launcher logs -f NAME"
        path = self.path.partition("?")[0]
        if not path.startswith("/") or any(part in (".", "..") for part in _unquoted(path).split("/")):
            # A path that leaves Ray's prefix would reach other paths of the API server.
            return 400, "The path is not a valid path of Ray's dashboard."
        if self.headers.get("Transfer-Encoding"):
            return 411, "A request body needs a Content-Length header."
        length = self.headers.get("Content-Length") or "0"
        if not length.isdecimal() or int(length) > _BODY_LIMIT:
            return 413, "Ray accepts at most 100 MiB."
        return None

    def _start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers of an answer, which no cache may keep."""
        self.send_response(status)
        for name, value in {**headers, "Cache-Control": "no-store", "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self, status: int, text: str) -> None:
        data = f"{text}\n".encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._start(status, {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(data))})
            if self.command != "HEAD":
                self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Do nothing, to keep requests out of the user's terminal."""


def _unquoted(path: str) -> str:
    """Return the path decoded twice, because a server behind this one may decode it again."""
    return unquote(unquote(path)).replace("\\", "/")


def _same_user(connection: socket.socket) -> bool:
    """Return whether the peer is a process of this user; True if the system has no table of connections.

    Only an established row has the owner's uid. The kernel reports the uid 0 for a socket that its process has closed.
    """
    try:
        rows = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return True
    try:
        theirs, ours = (_url(*address) for address in (connection.getpeername(), connection.getsockname()))
    except OSError:  # the peer has reset the connection
        return False
    wanted = [theirs, ours, _ESTABLISHED, str(os.getuid())]
    return any([*fields[1:4], fields[7]] == wanted for fields in map(str.split, rows))


def _url(host: str, port: int) -> str:
    """Return an address in the format of /proc/net/tcp: the four bytes as a native integer, then the port."""
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    return f"{number:08X}:{port:04X}"
