"""Ray's dashboard on a local port: each request is forwarded through the API server, with Ray's token added.

The guards of the port are in launcher/products/common/guarded_server.py. The pages are those of the Ray cluster's
members: only the headers in the lists below are passed on. Plain HTTP only, which is sufficient for Ray's dashboard;
websockets (`ray job logs --follow`) are refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import unquote

from launcher.config.suggest import closest, join_or
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import RAY_CLUSTER, RAY_JOB, Cluster, Forbidden, Unreachable
from launcher.k8s.errors import ClusterError
from launcher.k8s.objects import Object
from launcher.products.common.guarded_server import GuardedHandler, GuardedServer
from launcher.products.ray_cluster import clusters as ray_clusters
from launcher.products.ray_cluster.backend import RayClusterBackend
from launcher.products.ray_cluster.jobs import RayHead, RayJobs

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


class DashboardServer(GuardedServer):
    """Serves the dashboard of a Ray head."""

    def __init__(self, head: RayHead, port: int) -> None:
        super().__init__(port, _Handler, what="Ray's dashboard", command="launcher dashboard")
        self.head = head


@contextlib.contextmanager
def opened(cluster: Cluster, name: str, port: int = 0) -> Iterator[tuple[str, DashboardServer]]:
    """Yield a URL that opens the dashboard of NAME in a browser, and its server. The port 0 selects a free port.

    The caller calls `serve_forever`. Raises LauncherError if there is no dashboard, or Ray does not answer.
    """
    with DashboardServer(head_of(cluster, name), port) as server:
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


class _Handler(GuardedHandler):
    server: DashboardServer

    def serve(self) -> None:
        if refusal := self._not_supported():
            self.answer(*refusal)
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
            self.answer(502, f"{error.message}\n{error.hint}".rstrip())
            return
        except LauncherError as error:
            self.answer(500, f"{error.message}\n{error.hint}".rstrip())
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError), contextlib.closing(answer):
            self.start(answer.status, {name: value for name, value in answer.headers.items() if name in _FROM_RAY})
            if self.command == "HEAD":
                return
            # If the response is cut off, it is shorter than its Content-Length, which the browser detects.
            with contextlib.suppress(Unreachable):
                for part in answer.parts():
                    self.wfile.write(part)
                    self.wfile.flush()

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


def _unquoted(path: str) -> str:
    """Return the path decoded twice, because a server behind this one may decode it again."""
    return unquote(unquote(path)).replace("\\", "/")
