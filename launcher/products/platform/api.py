"""The use of quota in queues."""

from __future__ import annotations

from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.platform import queues as platform_queues
from launcher.products.platform.queues import QueuesUse


def queues(*, target: Target = DEFAULT_TARGET) -> QueuesUse:
    """Return quota, use, and waiting runs of Kueue's queues: those of the namespace, or with `all_namespaces` all.

    Raises LauncherError if no cluster is configured, Kueue is not installed, or the user may not list LocalQueues.
    """
    return platform_queues.read(target.cluster(), everywhere=target.all_namespaces)
