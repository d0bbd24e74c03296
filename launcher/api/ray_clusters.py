"""List long-lived Ray clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.backends.ray_cluster.clusters import RayClusterStatus


def clusters(
    name: str | None = None, *, target: Target = DEFAULT_TARGET, warn: Callable[[str], None] = lambda _: None
) -> list[RayClusterStatus]:
    """Return the long-lived Ray clusters of the namespace, with their pods and runs; [] if no cluster is configured.

    With `name`, return only the Ray cluster with that name. Raises LauncherError if the API server does not answer, or
    if KUBECONFIG names only files that do not exist. Calls `warn` with a sentence for each object that cannot be read.
    """
    if not target.cluster_requested:
        return []
    from launcher.backends.ray_cluster.backend import RayClusterBackend

    cluster = target.cluster()
    found = list(RayClusterBackend(cluster).clusters(name))
    for sentence in sorted(cluster.unreadable):
        warn(f"{sentence} It is left out.")
    return found
