"""The quota of Kueue's queues, its use and what is lent, by queue and team: `launcher queues`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from launcher.k8s.client import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, Forbidden, KindNotServed
from launcher.k8s.kueue.queues import ClusterQueue, Cohort, FlavorResource, LocalQueue, Queue
from launcher.k8s.kueue.quota import Quotas
from launcher.products.platform.uncounted import is_chip

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster, Kind


@dataclass(frozen=True)
class QuotaUse:
    """The quota of a ClusterQueue for one resource in one flavor, in the resource's unit: chips, CPUs or bytes.

    `nominal` is its own quota. `used` is what its runs hold, and `borrowed` the part of it above `nominal`. `lent` is
    the part of its own unused quota that runs of other queues hold. `free` is what a run can get now without a
    preemption, including what the queue may borrow.
    """

    flavor: str
    resource: str
    nominal: Decimal
    used: Decimal
    borrowed: Decimal
    lent: Decimal
    free: Decimal


@dataclass(frozen=True)
class TeamUse:
    """A LocalQueue: what the runs of its namespace hold, how many are admitted, and how many wait."""

    namespace: str
    local_queue: str
    cluster_queue: str
    used: Mapping[FlavorResource, Decimal]
    admitted: int
    pending: int

    def as_json(self) -> dict[str, Any]:
        used = [{"flavor": flavor, "resource": name, "used": amount} for (flavor, name), amount in self.used.items()]
        return vars(self) | {"used": used}


@dataclass(frozen=True)
class QueueUse:
    """A ClusterQueue. `inactive` is why it admits no runs, or "". `cohort` is "" if it shares no quota."""

    name: str
    cohort: str
    inactive: str
    quotas: Sequence[QuotaUse]
    admitted: int
    pending: int


@dataclass(frozen=True)
class QueuesUse:
    """The ClusterQueues and the LocalQueues. `cluster_queues` is None if the user may not list ClusterQueues."""

    cluster_queues: Sequence[QueueUse] | None
    local_queues: Sequence[TeamUse]

    def as_json(self) -> dict[str, Any]:
        return {"cluster_queues": self.cluster_queues, "local_queues": [queue.as_json() for queue in self.local_queues]}


def read(cluster: Cluster, *, everywhere: bool) -> QueuesUse:
    """Return the queues of the namespace, or of all namespaces.

    Raises Forbidden if the user may not list LocalQueues, and KindNotServed if Kueue is not installed.
    """
    local_queues = [LocalQueue(obj) for obj in cluster.list(LOCAL_QUEUE, all_namespaces=everywhere)]
    listed = _visible(cluster, CLUSTER_QUEUE)
    queues: list[QueueUse] | None = None
    if listed is not None:
        cluster_queues = [ClusterQueue(obj) for obj in listed]
        cohorts = [Cohort(obj) for obj in _visible(cluster, COHORT) or ()]
        wanted = {queue.cluster_queue for queue in local_queues}
        queues = [queue_use for queue_use in use(cluster_queues, cohorts) if everywhere or queue_use.name in wanted]
    return QueuesUse(
        queues, [_team(queue) for queue in sorted(local_queues, key=lambda queue: (queue.namespace, queue.name))]
    )


def use(cluster_queues: Sequence[ClusterQueue], cohorts: Iterable[Cohort] = ()) -> list[QueueUse]:
    """Return the use of each ClusterQueue, in the order of cohorts and names. All queues of a cohort must be given."""
    quotas = Quotas(cluster_queues, cohorts)
    return [_queue(queue, quotas) for queue in sorted(cluster_queues, key=lambda queue: (queue.cohort, queue.name))]


def shown[Row](rows: Iterable[Row], what: Callable[[Row], FlavorResource]) -> list[Row]:
    """Leave out the other resources of flavors that have chips, such as the CPUs of their hosts."""
    every = list(rows)
    with_chips = {what(row)[0] for row in every if is_chip(what(row)[1])}
    return [row for row in every if what(row)[0] not in with_chips or is_chip(what(row)[1])]


def _visible(cluster: Cluster, kind: Kind) -> list[dict[str, Any]] | None:
    """Return the objects of a kind without a namespace; None if the user may not list them."""
    try:
        return cluster.list(kind)
    except (Forbidden, KindNotServed):
        return None


def _queue(queue: ClusterQueue, quotas: Quotas) -> QueueUse:
    rows = []
    for what in queue.quotas:
        nominal, used = queue.quotas[what].nominal, quotas.used(queue.name, what)
        free = quotas.available(queue.name, what)
        unused = max(Decimal(), nominal - used)
        rows.append(QuotaUse(*what, nominal, used, max(Decimal(), used - nominal), max(Decimal(), unused - free), free))
    return QueueUse(
        queue.name, quotas.cohort(queue.name), _inactive(queue), rows, queue.admitted or 0, queue.pending or 0
    )


def _team(queue: LocalQueue) -> TeamUse:
    used = {what: amount for what, amount in queue.used.items() if amount}
    return TeamUse(queue.namespace, queue.name, queue.cluster_queue, used, queue.admitted or 0, queue.pending or 0)


def _inactive(queue: Queue) -> str:
    if queue.stopped:
        return f"stopped ({queue.stop_policy})"
    active = queue.condition("Active")
    return "" if not active or active.is_true else active.message or active.reason or "not active"
