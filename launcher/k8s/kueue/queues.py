"""Kueue's queues, and the objects that they name, as typed values: cohorts, flavors, topologies, admission checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from launcher.k8s.nodes import Taint, Toleration, taints, tolerations
from launcher.k8s.objects import ApiObject, Object, quantity

FlavorResource = tuple[str, str]
"""The name of a flavor and of a resource: the key of quota."""


def queue_order[Time: (str, float)](priority: int, since: Time, uid: str) -> tuple[int, Time, str]:
    """Return the sort key in a ClusterQueue (pkg/cache/queue/cluster_queue.go): priority, then time, then UID."""
    return -priority, since, uid


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a queue or cohort for one resource in one flavor. A limit of None means no limit."""

    nominal: Decimal = Decimal()
    borrowing_limit: Decimal | None = None
    lending_limit: Decimal | None = None


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """The resources that a queue has quota for in the same flavors, and these in the order that Kueue tries them."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


class QuotaOwner(ApiObject):
    """A ClusterQueue or a Cohort."""

    @cached_property
    def quotas(self) -> Mapping[FlavorResource, Quota]:
        return {
            (flavor["name"], entry["name"]): Quota(
                quantity(entry.get("nominalQuota") or 0), _limit(entry, "borrowingLimit"), _limit(entry, "lendingLimit")
            )
            for group in self.spec.get("resourceGroups") or ()
            for flavor in group.get("flavors") or ()
            for entry in flavor.get("resources") or ()
        }

    @property
    def weighted(self) -> bool:
        """Whether it has a weight for fair sharing."""
        return bool(self.spec.get("fairSharing"))


class Cohort(QuotaOwner):
    """A cohort: queues, and other cohorts, that lend each other quota."""

    @property
    def parent(self) -> str:
        """The name of its parent, or ""."""
        return str(self.spec.get("parentName") or self.spec.get("parent") or "")


class Queue(ApiObject):
    """A ClusterQueue or a LocalQueue."""

    @property
    def stop_policy(self) -> str:
        """Its stop policy: "Hold" or "HoldAndDrain" if an administrator has stopped it, else "None"."""
        return self.spec.get("stopPolicy") or "None"

    @property
    def stopped(self) -> bool:
        return self.stop_policy != "None"

    @cached_property
    def used(self) -> Mapping[FlavorResource, Decimal]:
        """The quota that its runs hold, reserved and admitted."""
        return {
            (flavor["name"], entry["name"]): quantity(entry.get("total") or 0)
            for flavor in self.status.get("flavorsReservation") or ()
            for entry in flavor.get("resources") or ()
        }

    @property
    def pending(self) -> int | None:
        """The number of Workloads that wait in it, or None if Kueue has not reported it."""
        number: int | None = self.status.get("pendingWorkloads")
        return number

    @property
    def admitted(self) -> int | None:
        """The number of admitted Workloads that have not ended, or None if Kueue has not reported it."""
        number: int | None = self.status.get("admittedWorkloads")
        return number


class LocalQueue(Queue):
    """A queue of a namespace."""

    @property
    def cluster_queue(self) -> str:
        """The name of its ClusterQueue, or ""."""
        return self.spec.get("clusterQueue") or ""


class ClusterQueue(Queue, QuotaOwner):
    """A queue with quota, to which LocalQueues submit."""

    @property
    def cohort(self) -> str:
        """The name of its cohort, or ""."""
        return str(self.spec.get("cohortName") or self.spec.get("cohort") or "")

    @cached_property
    def groups(self) -> tuple[ResourceGroup, ...]:
        return tuple(
            ResourceGroup(
                tuple(group.get("coveredResources") or ()),
                tuple(flavor["name"] for flavor in group.get("flavors") or ()),
            )
            for group in self.spec.get("resourceGroups") or ()
        )

    @property
    def strict(self) -> bool:
        """Whether it admits runs strictly in order."""
        return bool(self.spec.get("queueingStrategy") == "StrictFIFO")

    @property
    def ordered_by_usage(self) -> bool:
        """Whether admission fair sharing sorts it. Then only Kueue knows the order."""
        mode = (self.spec.get("admissionScope") or {}).get("admissionMode")
        return bool(mode == "UsageBasedAdmissionFairSharing")

    @property
    def preempts(self) -> bool:
        """Whether its runs may preempt others of the same queue."""
        return ((self.spec.get("preemption") or {}).get("withinClusterQueue") or "Never") != "Never"

    @property
    def namespace_selector(self) -> Object | None:
        """The selector of the namespaces whose runs it accepts; None selects no namespace."""
        selector: Object | None = self.spec.get("namespaceSelector")
        return selector


class ResourceFlavor(ApiObject):
    """A kind of nodes that quota is for. Its tolerations are added to those of the pods."""

    @property
    def node_labels(self) -> Mapping[str, str]:
        return self.spec.get("nodeLabels") or {}

    @cached_property
    def node_taints(self) -> tuple[Taint, ...]:
        return taints(self.spec.get("nodeTaints"))

    @cached_property
    def tolerations(self) -> tuple[Toleration, ...]:
        return tolerations(self.spec)

    @property
    def topology(self) -> str:
        """The name of its Topology, or ""."""
        return self.spec.get("topologyName") or ""


class Topology(ApiObject):
    """The levels by which Kueue places pods close together."""

    @property
    def levels(self) -> list[str]:
        """The label of the nodes for each level, the largest level first."""
        return [level["nodeLabel"] for level in self.spec.get("levels") or ()]


class AdmissionCheck(ApiObject):
    """A check by another controller before a run is admitted."""

    @property
    def controller(self) -> str:
        return self.spec.get("controllerName") or ""


class PriorityClass(ApiObject):
    """A WorkloadPriorityClass."""

    @property
    def value(self) -> int:
        return self.raw.get("value") or 0


def _limit(entry: Object, key: str) -> Decimal | None:
    return None if entry.get(key) is None else quantity(entry[key])
