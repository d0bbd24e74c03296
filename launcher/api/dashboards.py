"""Serve the dashboards of Ray clusters."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from launcher.backends.lookup import find_run
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.backends.ray_cluster.dashboard import DashboardServer


@contextlib.contextmanager
def dashboard(name: str, *, port: int = 0, target: Target = DEFAULT_TARGET) -> Iterator[tuple[str, DashboardServer]]:
    """Serve Ray's dashboard of a long-lived Ray cluster, or of a run with one, on a local port (0: a free port).

        with api.dashboard("notebooks") as (url, server):
            server.serve_forever()

    `url` opens the dashboard in a browser. It contains `server.token`, which other clients of `server.address` send as
    `Authorization: Bearer TOKEN`. Raises LauncherError if the Ray cluster does not exist, or its token cannot be read.
    """
    from launcher.backends.ray_cluster.dashboard import opened

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
