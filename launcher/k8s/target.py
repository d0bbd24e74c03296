"""The place where a verb looks for runs: this machine, a cluster, or first one and then the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster


@dataclass(frozen=True)
class Target:
    """The selected cluster or this machine.

    `context` and `namespace` are as for kubectl; either of them selects a cluster. `local` selects this machine.
    Without any of them, both are selected: the runs of this machine and of the current context's namespace.
    `all_namespaces` selects all namespaces of the cluster.
    """

    context: str | None = None
    namespace: str | None = None
    local: bool = False
    all_namespaces: bool = False

    @property
    def includes_local(self) -> bool:
        """Whether this machine's runs are selected."""
        return self.local or (self.context is None and self.namespace is None and not self.all_namespaces)

    @property
    def includes_cluster(self) -> bool:
        """Whether a cluster's runs are selected. False by default if no cluster is configured."""
        if self.local:
            return False
        if self.context is not None or self.namespace is not None or self.all_namespaces:
            return True
        from launcher.k8s import kubeconfig

        return kubeconfig.configured()

    @property
    def cluster_requested(self) -> bool:
        """Whether the user requested a cluster: `includes_cluster`, or KUBECONFIG names only missing files."""
        from launcher.k8s import kubeconfig

        return self.includes_cluster or (not self.local and bool(kubeconfig.nowhere()))

    def cluster(self) -> Cluster:
        """Return the cluster. Makes no request. Raises LauncherError if no cluster is configured."""
        from launcher.k8s.client import connect

        return connect(self.context, self.namespace)


DEFAULT_TARGET = Target()
