"""A run and its queue: what decides whether it can start. Each part is read once, when a rule first needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Protocol

from launcher.backends.kubernetes.run_object import RunObject
from launcher.diagnose.explain.formatting import time_since
from launcher.k8s import client, label_keys
from launcher.k8s.errors import Forbidden, KindNotServed
from launcher.k8s.kueue import workloads as kueue_workloads
from launcher.k8s.kueue.flavor_fit import FlavorFit, flavor_fits
from launcher.k8s.kueue.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, PriorityClass, ResourceFlavor
from launcher.k8s.kueue.quota import Quotas
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import Object


class ClusterReader(Protocol):
    """The read-only part of launcher.k8s.client.Cluster that is needed here."""

    @property
    def unreadable(self) -> Mapping[str, None]: ...

    def get(self, kind: client.Kind, name: str, namespace: str | None = None) -> Any: ...

    def list(
        self,
        kind: client.Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        all_namespaces: bool = False,
        without: Sequence[str] = (),
    ) -> Any: ...

    def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None) -> Any: ...


@dataclass
class QueueSituation:
    """A run and its queue.

    For a run that has not been submitted, `expected_workload` is the Workload that Kueue would create.
    `cli_args` has the options that a command needs after the run's name to find it, if its namespace is not enough.
    `unseen` lists what RBAC hides, a phrase each. `absent` has the kinds that the cluster does not serve.
    """

    run: RunObject
    look: ClusterReader
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    unseen: list[str] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)
    expected_workload: Workload | None = None
    cli_args: str = ""

    def with_values(self, *sets: str) -> str:
        """Return the instruction to repeat it with other values."""
        given = " ".join(f"--set {item}" for item in sets)
        if not self.submitted:
            return f"submit it with {given}"
        return f"launcher cancel {self.command_args}, then submit it again with {given} --continue"

    @property
    def slices_key(self) -> str:
        """The key of the values with the number of slices."""
        return "slice.count"

    @property
    def submitted(self) -> bool:
        return self.expected_workload is None

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def namespace(self) -> str:
        return self.run.namespace

    @property
    def command_args(self) -> str:
        """The run as an argument of a command: "demo -n research"."""
        return f"{self.name}{self.cli_args or f' -n {self.namespace}'}"

    def ago(self, since: object) -> str:
        """Return how long ago an RFC 3339 time was, as readable text; "" without a time."""
        return time_since(str(since or ""), self.now)

    @cached_property
    def slices(self) -> int:
        """The number of slices that the run requests."""
        if self.run.ray:
            spec = self.run.raw["spec"].get("rayClusterSpec") or {}
            return sum(int(group.get("replicas") or 1) for group in spec.get("workerGroupSpecs") or []) or 1
        return sum(int(job.get("replicas") or 1) for job in self.run.raw["spec"].get("replicatedJobs") or []) or 1

    @cached_property
    def workload(self) -> Workload | None:
        """The run's Workload: the newest, if there are several."""
        if self.expected_workload is not None:
            return self.expected_workload
        objects = self._list(client.WORKLOAD, labels=f"{label_keys.KUEUE_JOB_UID}={self.run.uid}")
        return kueue_workloads.newest(kueue_workloads.workloads(objects))

    @property
    def queue(self) -> str:
        """The name of the run's LocalQueue; "" if it has none."""
        return self.run.queue or (self.workload.local_queue if self.workload else "")

    @cached_property
    def local_queues(self) -> dict[str, LocalQueue]:
        """The LocalQueues of the run's namespace."""
        return {queue.name: queue for queue in map(LocalQueue, self._list(client.LOCAL_QUEUE))}

    @property
    def local_queue(self) -> LocalQueue | None:
        return self.local_queues.get(self.queue)

    @property
    def cluster_queue_name(self) -> str:
        return self.local_queue.cluster_queue if self.local_queue else ""

    @property
    def cluster_queue(self) -> ClusterQueue | None:
        return self.cluster_queues.get(self.cluster_queue_name)

    @cached_property
    def cluster_queues(self) -> dict[str, ClusterQueue]:
        return {queue.name: queue for queue in map(ClusterQueue, self._list(client.CLUSTER_QUEUE, everywhere=True))}

    @cached_property
    def flavors(self) -> dict[str, ResourceFlavor]:
        return {item.name: item for item in map(ResourceFlavor, self._list(client.RESOURCE_FLAVOR, everywhere=True))}

    @cached_property
    def quotas(self) -> Quotas:
        return Quotas(self.cluster_queues.values(), map(Cohort, self._list(client.COHORT, everywhere=True)))

    @cached_property
    def pod_sets(self) -> list[kueue_workloads.PodSet]:
        return self.workload.pod_sets if self.workload else []

    @cached_property
    def verdicts(self) -> list[FlavorFit]:
        """How the run's requests fit its queue, the worst first; [] if the queue cannot be read."""
        return self.fits_in(self.cluster_queue_name)

    def fits_in(self, queue: str) -> list[FlavorFit]:
        """Return how the run's requests fit any ClusterQueue; see `verdicts`."""
        if queue not in self.quotas or not self.flavors:
            return []
        return flavor_fits(self.pod_sets, queue, self.quotas, self.flavors)

    @cached_property
    def admission_checks(self) -> dict[str, AdmissionCheck]:
        return {check.name: check for check in map(AdmissionCheck, self._list(client.ADMISSION_CHECK, everywhere=True))}

    @cached_property
    def priorities(self) -> dict[str, int]:
        """The WorkloadPriorityClasses and their values."""
        return {
            item.name: item.value for item in map(PriorityClass, self._list(client.PRIORITY_CLASS, everywhere=True))
        }

    def _list(
        self,
        kind: client.Kind,
        *,
        labels: str = "",
        fields: str = "",
        everywhere: bool = False,
        without: Sequence[str] = (),
    ) -> list[Object]:
        """Return the objects of a kind, of the run's namespace unless `everywhere`; [] if hidden or not served."""
        try:
            objects: list[Object] = self.look.list(
                kind, None if everywhere else self.namespace, labels=labels, fields=fields, without=without
            )
        except Forbidden:
            self._hide(kind)
            return []
        except KindNotServed:
            self.absent.add(kind.kind)
            return []
        return objects

    def _hide(self, kind: client.Kind) -> None:
        if (phrase := f"the {kind.kind}s") not in self.unseen:
            self.unseen.append(phrase)


def holds_quota(workload: Workload | None) -> bool:
    return workload is not None and workload.has_quota
