"""Where a verb looks for runs: this machine, a cluster, or first one and then the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster


@dataclass(frozen=True)
class Target:
    """`context` and `namespace` as kubectl takes them; either of them means a cluster, and `local` this machine.

    With nothing given both are looked at: the runs of this machine, and of the current context's namespace.
    `all_namespaces` means all namespaces of the cluster.
    """

    context: str | None = None
    namespace: str | None = None
    local: bool = False
    all_namespaces: bool = False

    @property
    def includes_local(self) -> bool:
        """Whether this machine's runs are meant."""
        return self.local or (self.context is None and self.namespace is None and not self.all_namespaces)

    @property
    def includes_cluster(self) -> bool:
        """Whether a cluster's runs are meant, if there is a cluster."""
        if self.local:
            return False
        if self.context is not None or self.namespace is not None or self.all_namespaces:
            return True
        from launcher.k8s.kubeconfig import configured

        return configured()

    @property
    def cluster_requested(self) -> bool:
        """Whether the user asked for a cluster's runs: as `includes_cluster`, or by a KUBECONFIG that names no file."""
        from launcher.k8s.kubeconfig import nowhere

        return self.includes_cluster or (not self.local and bool(nowhere()))

    def cluster(self) -> Cluster:
        """The cluster; no request is made yet. Raises LauncherError where none is configured."""
        from launcher.k8s.client import connect

        return connect(self.context, self.namespace)


DEFAULT_TARGET = Target()
