"""The rights, queues and priorities that a drill needs in a namespace, and the runs of others in its queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from launcher.errors import LauncherError
from launcher.k8s.client import CLUSTER_QUEUE, LOCAL_QUEUE, PRIORITY_CLASS, WORKLOAD, Cluster, Kind
from launcher.k8s.errors import Forbidden, KindNotServed
from launcher.k8s.kueue.queues import ClusterQueue, LocalQueue, PriorityClass
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.rbac import Permission, role

DELETE_PODS = Permission("delete", "pods", "")
EVICT_PODS = Permission("create", "pods/eviction", "")
EXEC = (Permission("get", "pods/exec", ""), Permission("create", "pods/exec", ""))
"""A websocket is a GET request. Kubernetes 1.35 and later also need `create` for it."""


def needed(kinds: Iterable[Kind]) -> list[Permission]:
    """Return the permissions that any drill needs for runs of these kinds: to submit, follow, cancel and delete."""
    runs = [
        Permission(verb, kind.plural, kind.group)
        for kind in kinds
        for verb in ("get", "list", "create", "patch", "delete")
    ]
    workloads = [Permission(verb, WORKLOAD.plural, WORKLOAD.group) for verb in ("get", "list", "patch")]
    return [*runs, *workloads, Permission("list", "pods", ""), Permission("get", "pods/log", "")]


def missing(cluster: Cluster, rights: Iterable[Permission]) -> list[Permission]:
    """Return those of the rights that the user does not have: a SelfSubjectAccessReview for each."""
    return [right for right in dict.fromkeys(rights) if not _may(cluster, right)]


def sentence(cluster: Cluster, lacking: Sequence[Permission]) -> str:
    return f"In the namespace {cluster.namespace} you may not {', '.join(map(str, lacking))}"


def refusal(cluster: Cluster, lacking: Sequence[Permission]) -> LauncherError:
    """Return the error of a drill without these rights, with a Role that grants them."""
    return LauncherError(
        f"{sentence(cluster, lacking)}, which a drill needs.",
        f"A platform engineer can apply and bind this:\n{role(lacking, cluster.namespace, 'slipway-drill')}",
    )


def _may(cluster: Cluster, right: Permission) -> bool:
    resource, _, subresource = right.resource.partition("/")
    return cluster.can(right.verb, resource, right.group, subresource=subresource)


@dataclass(frozen=True)
class Others:
    """The runs in a queue that are not of the drill. `names` are those of the namespace, and `count` those of all
    namespaces; None if that is unknown. `neighbours` are the other queues of its cohort that have runs.
    """

    queue: str
    names: Sequence[str]
    count: int | None
    neighbours: Sequence[str]
    preempts: bool

    def sentence(self) -> str:
        """Return a sentence about them; "" if there are none."""
        if self.names:
            more = f" and {self.count - len(self.names)} more" if self.count and self.count > len(self.names) else ""
            return f"Other runs are in the queue {self.queue}: {', '.join(self.names)}{more}."
        if self.count:
            return f"Runs of other namespaces are in the queue {self.queue}: {self.count}."
        if self.neighbours:
            return f"Runs are in queues that share the quota of {self.queue}: {', '.join(self.neighbours)}."
        return ""

    def against_preemption(self) -> str:
        """Return why a run of a high priority must not be submitted, or would preempt nothing; "" if it can be."""
        if warning := self.sentence():
            return f"{warning} A run of a high priority could preempt them."
        if self.count is None:
            return f"You may not read the queue {self.queue}, so runs of others in it cannot be excluded."
        if not self.preempts:
            return f"The queue {self.queue} does not preempt runs of a lower priority."
        return ""


def others(cluster: Cluster, local_queue: str, ours: Iterable[str] = ()) -> Others:
    """Return the runs in a LocalQueue of the namespace and in its ClusterQueue, without `ours`.

    Raises LauncherError if the queue does not exist.
    """
    found = cluster.get(LOCAL_QUEUE, local_queue)
    if found is None:
        raise LauncherError(f"The queue {local_queue} does not exist in the namespace {cluster.namespace}.")
    name = LocalQueue(found).cluster_queue
    mine = set(ours)
    active = [each for each in map(Workload, cluster.list(WORKLOAD)) if not each.is_true("Finished") and each.active]
    names = sorted(each.owner for each in active if each.owner not in mine)
    own = len(active) - len(names)
    try:
        queues = {each.name: each for each in map(ClusterQueue, cluster.list(CLUSTER_QUEUE))}
    except Forbidden:
        return Others(name, names, None, (), preempts=True)
    queue = queues.get(name)
    if queue is None:
        raise LauncherError(f"The ClusterQueue {name} of the queue {local_queue} does not exist.")
    counted = _runs(queue) - own
    shares = [each.name for each in queues.values() if queue.cohort and each.cohort == queue.cohort and each != queue]
    return Others(
        name,
        names,
        max(counted, len(names)),
        [each for each in shares if _runs(queues[each]) > 0],
        preempts=queue.preempts,
    )


def _runs(queue: ClusterQueue) -> int:
    return (queue.admitted or 0) + (queue.pending or 0)


def priorities(cluster: Cluster) -> list[str]:
    """Return the priority classes of runs, the lowest first; [] if there are none, or you may not read them."""
    try:
        classes = map(PriorityClass, cluster.list(PRIORITY_CLASS))
    except (Forbidden, KindNotServed):
        return []
    return [each.name for each in sorted(classes, key=lambda each: each.value)]
