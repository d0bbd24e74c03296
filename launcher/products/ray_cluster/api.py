"""Read long-lived Ray clusters, and serve the dashboards of Ray clusters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from launcher.backends.lookup import find_run
from launcher.errors import LauncherError
from launcher.k8s.errors import UnreadableObject
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.ray_cluster import clusters as ray_clusters
from launcher.products.ray_cluster.backend import RayClusterBackend
from launcher.products.ray_cluster.clusters import RayClusterStatus

if TYPE_CHECKING:
    from launcher.products.ray_cluster.dashboard import DashboardServer


def clusters(
    name: str | None = None, *, target: Target = DEFAULT_TARGET, warn: Callable[[str], None] = lambda _: None
) -> list[RayClusterStatus]:
    """Return the long-lived Ray clusters of the namespace, with their pods and runs; [] if no cluster is configured.

    With `name`, return only the Ray cluster with that name. Raises LauncherError if the API server does not answer, or
    if KUBECONFIG names only files that do not exist. Calls `warn` with a sentence for each object that cannot be read.
    """
    if not target.cluster_requested:
        return []
    cluster = target.cluster()
    statuses = list(RayClusterBackend(cluster).clusters(name))
    for sentence in sorted(cluster.unreadable):
        warn(f"{sentence} It is left out.")
    return statuses


def table(target: Target, warn: Callable[[str], None]) -> tuple[Sequence[RayClusterStatus], str]:
    """Return the Ray clusters of `clusters` with the table of `launcher list`."""
    statuses = clusters(target=target, warn=warn)
    return statuses, ray_clusters.listing(statuses)


def details(name: str, target: Target) -> tuple[RayClusterStatus, str] | None:
    """Return the Ray cluster and the text of `launcher status`; None if it does not exist or cannot be read."""
    try:
        statuses = clusters(name, target=target)
    except UnreadableObject:
        raise  # it is the object with that name
    except LauncherError:
        return None
    return (statuses[0], ray_clusters.details(statuses[0])) if statuses else None


@contextlib.contextmanager
def dashboard(name: str, *, port: int = 0, target: Target = DEFAULT_TARGET) -> Iterator[tuple[str, DashboardServer]]:
    """Serve Ray's dashboard of a long-lived Ray cluster, or of a run with one, on a local port (0: a free port).

        with api.dashboard("notebooks") as (url, server):
            server.serve_forever()

    `url` opens the dashboard in a browser. It contains `server.token`, which other clients of `server.address` send as
    `Authorization: Bearer TOKEN`. Raises LauncherError if the Ray cluster does not exist, or its token cannot be read.
    """
    from launcher.products.ray_cluster.dashboard import opened

    with contextlib.ExitStack() as stack:
        try:
            served = stack.enter_context(opened(target.cluster(), name, port))
        except LauncherError:
            if target.includes_local and find_run(name, Target(local=True)) is not None:
                raise LauncherError(
                    f'The run "{name}" is on this machine; only a Ray cluster in Kubernetes has a dashboard.',
                    f"To show its state: launcher status {name}. To show its progress: launcher attach {name}",
                ) from None
            raise
        yield served
