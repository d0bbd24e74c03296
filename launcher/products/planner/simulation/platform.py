"""The queues that a simulation takes: ClusterQueues, Cohorts, flavors and teams, from values or from a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from launcher.config import accelerators
from launcher.errors import LauncherError
from launcher.k8s import label_keys
from launcher.k8s.kueue.queues import ClusterQueue, Cohort, LocalQueue, PriorityClass, ResourceFlavor
from launcher.k8s.objects import Object
from launcher.products.planner.simulation import specs

_TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
_MACHINE_LABEL = "node.kubernetes.io/instance-type"
_SPOT_LABEL = "cloud.google.com/gke-spot"
_PROVISIONING_LABELS = {
    _SPOT_LABEL: "spot",
    "cloud.google.com/gke-queued": "flex-start",
    "cloud.google.com/gke-flex-start": "flex-start",
    "cloud.google.com/reservation-name": "reservation",
}
RESOURCES = (accelerators.TPU_RESOURCE, accelerators.NVIDIA_RESOURCE, accelerators.AMD_RESOURCE)
"""The resources of chips."""


@dataclass(frozen=True, slots=True)
class SliceFlavor:
    """A ResourceFlavor as a kind of slices.

    `chips` is the number of chips of a slice, and `resource` their resource; 0 and "" if the flavor has no chips or
    they are not known. `accepts_any_run` is False if only runs that request its provisioning get it. `usd` is the price
    of a chip-hour, None if it is not known.
    """

    name: str
    accelerator: str = ""
    topology: str = ""
    chips: int = 0
    resource: str = ""
    provisioning: str = "on-demand"
    accepts_any_run: bool = True
    usd: float | None = None

    @property
    def has_chips(self) -> bool:
        return bool(self.resource)


@dataclass(frozen=True, slots=True)
class Team:
    """A team, and the ClusterQueue of its LocalQueue."""

    name: str
    queue: str


@dataclass(frozen=True, slots=True)
class Platform:
    """Queues and flavors. `ignored` has a sentence for each part of them that is not simulated."""

    cluster_queues: Sequence[ClusterQueue]
    cohorts: Sequence[Cohort]
    flavors: Mapping[str, SliceFlavor]
    teams: Mapping[str, Team]
    priorities: Mapping[str, int]
    ignored: Sequence[str] = ()
    resource_flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)

    @property
    def queue_names(self) -> list[str]:
        return [queue.name for queue in self.cluster_queues]

    def team_of(self, queue: str) -> str:
        """Return the team of a ClusterQueue, or the queue's own name if it has none or several."""
        owners = [team.name for team in self.teams.values() if team.queue == queue]
        return owners[0] if len(owners) == 1 else queue

    def quota(self, flavor: str, resource: str) -> Decimal:
        """Return the sum of the nominal quota of a flavor in all queues and cohorts."""
        owners = [*self.cluster_queues, *self.cohorts]
        return sum(
            (owner.quotas[key].nominal for owner in owners for key in [(flavor, resource)] if key in owner.quotas),
            Decimal(),
        )


def from_objects(objects: Iterable[Object], table: Mapping[str, Any], prices: Mapping[str, Any]) -> Platform:
    """Return the platform of these objects. `table` and `prices` are common.accelerators and common.prices.

    Raises LauncherError if a spec is not valid, or if the cohorts are a cycle.
    """
    by_kind: dict[str, list[Object]] = {}
    for obj in objects:
        by_kind.setdefault(str(obj.get("kind")), []).append(obj)
    queues = [ClusterQueue(obj) for obj in by_kind.get("ClusterQueue", ())]
    cohorts = [Cohort(obj) for obj in by_kind.get("Cohort", ())]
    ignored: list[str] = []
    queues = [ClusterQueue(_simulated(queue.raw, specs.cluster_queue_findings, ignored)) for queue in queues]
    cohorts = [Cohort(_simulated(cohort.raw, specs.cohort_findings, ignored)) for cohort in cohorts]
    specs.check_cohorts(cohorts)
    resource_flavors = {flavor.name: flavor for flavor in map(ResourceFlavor, by_kind.get("ResourceFlavor", ()))}
    ignored += [
        f"ResourceFlavor {flavor.name}: topology-aware scheduling ({flavor.topology}) is not simulated; quota decides."
        for flavor in resource_flavors.values()
        if flavor.topology
    ]
    flavors = {name: flavor_of(flavor, table, prices) for name, flavor in resource_flavors.items()}
    for name in specs.flavors_of(queues):
        flavors.setdefault(name, SliceFlavor(name))
    local = [LocalQueue(obj) for obj in by_kind.get("LocalQueue", ())]
    known = {queue.name for queue in queues}
    teams = {
        name: Team(name, queue.cluster_queue)
        for queue in local
        for name in [queue.label(label_keys.TEAM) or queue.namespace]
        if queue.cluster_queue in known
    }
    classes = [PriorityClass(obj) for obj in by_kind.get("WorkloadPriorityClass", ())]
    priorities = {each.name: each.value for each in classes}
    return Platform(queues, cohorts, flavors, teams, priorities, tuple(ignored), resource_flavors)


def flavor_of(flavor: ResourceFlavor, table: Mapping[str, Any], prices: Mapping[str, Any]) -> SliceFlavor:
    """Return a ResourceFlavor as a kind of slices, by its node labels."""
    labels = flavor.node_labels
    provisioning = next((kind for label, kind in _PROVISIONING_LABELS.items() if label in labels), "on-demand")
    kept_away = any(taint.key in (_SPOT_LABEL, "cloud.google.com/gke-queued") for taint in flavor.node_taints)
    accelerator, resource, chips, topology = "", "", 0, ""
    if label := labels.get(accelerators.TPU_LABEL):
        accelerator, resource = _row(table, label), accelerators.TPU_RESOURCE
        topology = labels.get(_TOPOLOGY_LABEL, "")
        chips = accelerators.chips(topology) if _is_shape(topology) else 0
    elif gpu := _gpu(table, labels):
        accelerator, resource = gpu, accelerators.resource(table.get(gpu) or {"kind": "gpu"})
        machines = (table.get(accelerator) or {}).get("machineTypes") or {}
        machine = labels.get(_MACHINE_LABEL) or (table.get(accelerator) or {}).get("defaultMachineType", "")
        chips = int(machines.get(machine, 1))
    price = ((prices.get(accelerator) or {}).get("perChipHour") or {}).get(provisioning)
    return SliceFlavor(flavor.name, accelerator, topology, chips, resource, provisioning, not kept_away, price)


def with_slices(platform: Platform, slices: Mapping[str, accelerators.Slice]) -> Platform:
    """Return the platform with the exact slices of its flavors, by name, as the values have them."""
    flavors = dict(platform.flavors)
    for name, exact in slices.items():
        if name in flavors and exact.resource:
            flavors[name] = replace(
                flavors[name],
                accelerator=exact.accelerator,
                topology=exact.topology,
                chips=exact.chips,
                resource=exact.resource,
            )
    return replace(platform, flavors=flavors)


def _simulated(obj: Object, findings: Any, ignored: list[str]) -> Object:
    """Return an object without the fields that are not simulated, and note each of them in `ignored`.

    Raises LauncherError for a value that is not valid.
    """
    fields = findings(obj.get("spec") or {})
    spec = dict(obj.get("spec") or {})
    title = f"{obj['kind']} {obj['metadata']['name']}"
    for entry in fields:
        if entry.unknown:  # a newer Kueue has more fields
            ignored.append(f"{title}: {entry.path} is not known, and is ignored.")
        elif entry.not_simulated:
            ignored.append(f"{title}: {entry.path} {entry.clause}.")
            spec.pop(entry.path.removeprefix("spec."), None)
        else:
            raise LauncherError(f"{title}: {entry.path} {entry.clause}.")
    return {**{key: value for key, value in obj.items() if key != "status"}, "spec": spec}


def _row(table: Mapping[str, Any], label: str) -> str:
    return next((name for name, row in table.items() if row.get("label") == label), label)


def _gpu(table: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return the row of the GPU with these node labels; its label on GKE if there is no row, or "" without a label."""
    for name, row in table.items():
        if row["kind"] == "gpu" and row["label"] and labels.get(accelerators.label_key(row)) == row["label"]:
            return name
    return labels.get(accelerators.GPU_LABEL, "")


def _is_shape(topology: str) -> bool:
    sides = topology.split("x")
    return bool(topology) and all(side.isdecimal() for side in sides)
