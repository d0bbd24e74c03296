"""Kueue's Workload as a typed value: the queue of a run, its position, its requests and its quota. Pure.

The rules are those of Kueue 0.19.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from launcher.k8s import label_keys
from launcher.k8s.kueue.queues import FlavorResource, LocalQueue, ResourceFlavor, queue_order
from launcher.k8s.nodes import tolerations
from launcher.k8s.objects import ApiObject, Condition, Object, quantity

Amounts = dict[str, Decimal]
"""Amounts by resource: chips, cores, bytes."""


# The group and versions of the visibility API; the newest version first.
VISIBILITY_GROUP = "visibility.kueue.x-k8s.io"
VISIBILITY_VERSIONS = ("v1beta2", "v1beta1")


# --- Workloads ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PodSet:
    """A part of a Workload: `count` pods of one template, and their total requests in `asks`."""

    name: str
    count: int
    spec: Object
    asks: Amounts


@dataclass(frozen=True, slots=True)
class CheckState:
    """The state of an admission check of a Workload. `since` is the time of its last change (RFC 3339), or ""."""

    name: str
    state: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """How often Kueue has evicted a Workload whose pods were not ready, and when it returns to its queue (RFC 3339)."""

    count: int
    at: str


class Workload(ApiObject):
    """Kueue's Workload of a run: its place in the queue, its requests and its quota."""

    @property
    def active(self) -> bool:
        """Whether Kueue may start it. An inactive Workload is stopped, and stays stopped."""
        return self.spec.get("active") is not False

    @property
    def local_queue(self) -> str:
        """The name of its LocalQueue, or ""."""
        return self.spec.get("queueName") or ""

    @property
    def owner(self) -> str:
        """The name of the run that it belongs to."""
        for owner in self.raw["metadata"].get("ownerReferences") or []:
            if owner.get("controller"):
                return str(owner["name"])
        return self.name

    @property
    def evicted(self) -> Condition:
        """The condition that is True from an eviction until Kueue reserves quota for it again."""
        return self.condition("Evicted")

    @property
    def reserved(self) -> Condition:
        return self.condition("QuotaReserved")

    @property
    def has_quota(self) -> bool:
        return self.reserved.is_true

    # --- the order of a queue ---

    @cached_property
    def priority(self) -> int:
        """The priority that Kueue sorts by: the Workload's priority plus the boost from its annotation."""
        boost = self.annotation(label_keys.KUEUE_PRIORITY_BOOST)
        return int(self.spec.get("priority") or 0) + (int(boost) if re.fullmatch(r"-?[0-9]{1,9}", boost) else 0)

    @property
    def priority_class(self) -> str:
        """The name of its WorkloadPriorityClass, or "" if it has none."""
        return str((self.spec.get("priorityClassRef") or {}).get("name") or "")

    @property
    def queued_at(self) -> str:
        """The time that it is sorted by in its queue, RFC 3339.

        This is the time of its last eviction if the pods were not ready in time
        (waitForPodsReady.requeuingStrategy.timestamp: Eviction, Kueue's default) or if an admission check failed.
        Otherwise it is the creation time. A preempted Workload keeps its position.
        """
        evicted = self.evicted
        if evicted.is_true and evicted.reason in ("PodsReadyTimeout", "AdmissionCheck"):
            return evicted.since
        return self.created

    @property
    def is_queued(self) -> bool:
        """Whether Kueue has it in a queue: active, not finished, without quota and not backing off."""
        return (
            self.active
            and not self.is_true("Finished")
            and not self.has_quota
            and self.reserved.reason != "OnHold"
            and not self.is_true("WaitingForReplacementPods")
            and not self.condition("Requeued").is_false
        )

    @property
    def order_key(self) -> tuple[int, str, str]:
        """The sort key in its ClusterQueue: higher priority first, then earlier time, then uid.

        Two cases are not covered. Kueue moves a Workload that waits for its victims to stop to the front, and does not
        report this. In a ClusterQueue with admission fair sharing, the LocalQueue with less usage is first
        (`ClusterQueue.ordered_by_usage`).
        """
        return queue_order(self.priority, self.queued_at, self.uid)

    # --- requests and quota ---

    @cached_property
    def pod_sets(self) -> list[PodSet]:
        """Its pod sets with the requests that Kueue counts.

        While a Workload waits, Kueue reports them in status.resourceRequests, after LimitRanges, overheads and the
        exclusions in its configuration. Before that, they are computed from the templates.
        """
        requests = self.status.get("resourceRequests") or []
        reported = {entry["name"]: entry.get("resources") or {} for entry in requests}
        sets = []
        for entry in self.spec.get("podSets") or []:
            spec = (entry.get("template") or {}).get("spec") or {}
            count = int(entry.get("count", 1))
            if entry["name"] in reported:
                asks = {resource: quantity(amount) for resource, amount in reported[entry["name"]].items()}
            else:
                asks = {resource: amount * count for resource, amount in pod_asks(spec).items() if amount}
            sets.append(PodSet(str(entry["name"]), count, spec, asks))
        return sets

    @cached_property
    def holds(self) -> dict[FlavorResource, Decimal]:
        """The quota that it has reserved, by flavor and resource; {} if it has none.

        The quota of pods that have ended is released before the rest (status.reclaimablePods).
        """
        if not self.has_quota or self.is_true("Finished"):
            return {}
        back = {entry["name"]: int(entry["count"]) for entry in self.status.get("reclaimablePods") or []}
        held: defaultdict[FlavorResource, Decimal] = defaultdict(Decimal)
        for entry in self._assignments:
            count = int(entry.get("count", 1)) or 1
            share = Decimal(max(0, count - back.get(entry["name"], 0))) / count
            for resource, amount in (entry.get("resourceUsage") or {}).items():
                flavor = (entry.get("flavors") or {}).get(resource)
                if flavor is not None:
                    held[flavor, resource] += quantity(amount) * share
        return dict(held)

    @property
    def cluster_queue(self) -> str:
        """The ClusterQueue whose quota it has, or "" if it has none."""
        return str((self.status.get("admission") or {}).get("clusterQueue") or "")

    @property
    def flavor(self) -> str:
        """The flavor of the hosts' chips, or without chips of their first resource; "" if it has no quota."""
        for entry in self._assignments:
            if entry["name"] != "head" and (flavors := entry.get("flavors") or {}):
                chips = [flavor for resource, flavor in flavors.items() if "/" in resource]
                return str((chips or list(flavors.values()))[0])
        return ""

    @property
    def pods_admitted(self) -> int:
        """The number of pods that Kueue has admitted."""
        return sum(int(part.get("count") or 0) for part in self._assignments)

    @property
    def checks(self) -> list[CheckState]:
        """Its admission checks."""
        return [
            CheckState(
                entry["name"],
                entry.get("state") or "",
                entry.get("message") or "",
                entry.get("lastTransitionTime") or "",
            )
            for entry in self.status.get("admissionChecks") or []
        ]

    # --- evictions ---

    @property
    def requeue(self) -> Requeue:
        state = self.status.get("requeueState") or {}
        return Requeue(int(state.get("count") or 0), state.get("requeueAt") or "")

    @property
    def evictions(self) -> int:
        """How often Kueue has evicted it, for any reason."""
        return sum(int(entry.get("count") or 0) for entry in self._evictions)

    @property
    def preemptions(self) -> int:
        """How often Kueue has preempted it."""
        return sum(int(entry.get("count") or 0) for entry in self._evictions if entry.get("reason") == "Preempted")

    @property
    def _assignments(self) -> list[Object]:
        return (self.status.get("admission") or {}).get("podSetAssignments") or []

    @property
    def _evictions(self) -> list[Object]:
        return (self.status.get("schedulingStats") or {}).get("evictions") or []


# The templates of pods, which only `pod_sets` needs: a list of all Workloads is read without them.
TEMPLATES = "spec.podSets.*.template"


def workloads(listed: Iterable[Object]) -> list[Workload]:
    return list(map(Workload, listed))


def newest(those: Iterable[Workload]) -> Workload | None:
    """Return the Workload that was created last, or None."""
    return max(those, key=lambda workload: workload.created, default=None)


# --- queues -------------------------------------------------------------------------------------------------------


def queued_workloads(those: Iterable[Workload], local_queues: Iterable[LocalQueue]) -> dict[str, list[Workload]]:
    """Return the queued Workloads of each ClusterQueue, in the order in which Kueue considers them.

    Takes one pass over the Workloads, for any number of queues. A Workload whose LocalQueue is not given is omitted.
    """
    targets = {(queue.namespace, queue.name): queue.cluster_queue for queue in local_queues}
    queues: defaultdict[str, list[Workload]] = defaultdict(list)
    for workload in those:
        target = targets.get((workload.namespace, workload.local_queue))
        if target and workload.is_queued:
            queues[target].append(workload)
    return {queue: sorted(waiting, key=lambda workload: workload.order_key) for queue, waiting in queues.items()}


# --- the requests of a pod ------------------------------------------------------------------------------------------


def pod_asks(spec: Object) -> Amounts:
    """Return the requests of one pod as Kubernetes counts them.

    The sum of its containers and sidecars, or the largest init container if that is more, plus the overhead of its
    runtime class. A limit without a request counts as the request.
    """
    running: Amounts = defaultdict(Decimal)
    starting: Amounts = {}
    sidecars: Amounts = defaultdict(Decimal)
    for container in spec.get("initContainers") or []:
        asks = _container_asks(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, asks)
            asks = {}
        for resource in {*asks, *sidecars}:
            need = asks.get(resource, Decimal()) + sidecars.get(resource, Decimal())
            starting[resource] = max(starting.get(resource, Decimal()), need)
    for container in spec.get("containers") or []:
        _add(running, _container_asks(container))
    _add(running, sidecars)
    total = {key: max(running.get(key, Decimal()), starting.get(key, Decimal())) for key in {*running, *starting}}
    whole = spec.get("resources") or {}
    for resource, amount in {**(whole.get("limits") or {}), **(whole.get("requests") or {})}.items():
        total[resource] = quantity(amount)
    for resource, amount in (spec.get("overhead") or {}).items():
        total[resource] = total.get(resource, Decimal()) + quantity(amount)
    return total


def _container_asks(container: Object) -> Amounts:
    resources = container.get("resources") or {}
    both = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {resource: quantity(amount) for resource, amount in both.items()}


def _add(total: Amounts, more: Amounts) -> None:
    for resource, amount in more.items():
        total[resource] += amount


# --- which flavors match a pod ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mismatch:
    """The reason why a flavor does not match a pod.

    Either a label differs (`key`, the value that the pod `wants`, the value that the flavor `has`), or the pod does not
    tolerate a `taint`.
    """

    flavor: str
    key: str = ""
    wants: str = ""
    has: str = ""
    taint: str = ""


def mismatch(flavor: ResourceFlavor, spec: Object) -> Mismatch | None:
    """Return why Kueue does not assign this flavor to a pod, or None if it does.

    Only the label keys of the flavor count. The scheduler checks the other labels of the pod's selector.
    """
    for taint in flavor.node_taints:
        if taint.repels and not taint.tolerated((*tolerations(spec), *flavor.tolerations)):
            return Mismatch(flavor.name, taint=str(taint))
    labels = flavor.node_labels
    for key, wants in (spec.get("nodeSelector") or {}).items():
        if key in labels and labels[key] != wants:
            return Mismatch(flavor.name, key, str(wants), labels[key])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    worst = None
    for term in required.get("nodeSelectorTerms") or []:
        about = [entry for entry in term.get("matchExpressions") or [] if entry.get("key") in labels]
        failing = next((entry for entry in about if not _matches(entry, labels)), None)
        if failing is None:  # the terms are alternatives; one without this flavor's keys matches
            return None
        wants = f"{failing.get('operator')} {', '.join(failing.get('values') or [])}".strip()
        worst = Mismatch(flavor.name, str(failing["key"]), wants, labels[failing["key"]])
    return worst


_WHOLE = re.compile(r"-?[0-9]{1,18}")


def _matches(expression: Object, labels: Mapping[str, str]) -> bool:
    has, values = labels[expression["key"]], expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return has in values
        case "NotIn":
            return has not in values
        case "Exists":
            return True
        case "DoesNotExist":
            return False
        case "Gt" | "Lt" as operator if values and _WHOLE.fullmatch(has) and _WHOLE.fullmatch(values[0]):
            return int(has) > int(values[0]) if operator == "Gt" else int(has) < int(values[0])
    return False
