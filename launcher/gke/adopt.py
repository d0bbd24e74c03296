"""Values for an existing cluster: flavors, quota and the key `gke`, from its nodes and, on GKE, from its API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config import accelerators
from launcher.config.values.files import chart_defaults
from launcher.gke.google import Google
from launcher.gke.plan import MANAGED_LABEL
from launcher.k8s.objects import Object

_TPU, _TOPOLOGY = "cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"
_GPU, _POOL = "cloud.google.com/gke-accelerator", "cloud.google.com/gke-nodepool"
_NVIDIA = "nvidia.com/gpu.product"
_TYPE, _ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
_PROVISIONING = (("cloud.google.com/gke-spot", "spot"), ("cloud.google.com/gke-flex-start", "flex-start"))


@dataclass(frozen=True)
class Group:
    """Nodes with the same accelerator, shape and provisioning: a flavor."""

    accelerator: str
    topology: str
    machine_type: str
    provisioning: str
    reservation: str

    @property
    def name(self) -> str:
        """The name of the flavor, such as v6e-4x4-spot."""
        parts = [self.accelerator, self.topology, "" if self.provisioning == "on-demand" else self.provisioning]
        return "-".join(filter(None, parts))


@dataclass(frozen=True)
class Adopted:
    """`values` for launcher cluster and launcher install queues, and sentences about what was left out."""

    values: Mapping[str, Any]
    notes: Sequence[str]


def is_plain(node: Object) -> bool:
    """Return whether a node has no accelerator."""
    labels = node["metadata"].get("labels") or {}
    return not any(labels.get(key) for key in (_TPU, _GPU, _NVIDIA))


def allocatable(node: Object, resource: str) -> str:
    """Return the amount of cpu or memory that pods can request on a node."""
    return str(((node.get("status") or {}).get("allocatable") or {}).get(resource) or 0)


def from_nodes(nodes: Iterable[Object]) -> tuple[dict[Group, int], list[str]]:
    """Return the number of nodes of each group, and a sentence for each unknown accelerator."""
    table = chart_defaults("run").tree["common"]["accelerators"]
    by_label = {row["label"]: name for name, row in table.items() if row["label"]}
    found: Counter[Group] = Counter()
    unknown: Counter[str] = Counter()
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        label = labels.get(_TPU) or labels.get(_GPU) or labels.get(_NVIDIA, "")
        name = by_label.get(label) or by_label.get(label.lower()) or ("" if label else "cpu")
        if not name:
            unknown[label] += 1
            continue
        provisioning = next((how for key, how in _PROVISIONING if labels.get(key) == "true"), "on-demand")
        reservation = labels.get("cloud.google.com/reservation-name", "")
        cpu = name == "cpu"
        found[
            Group(
                name,
                labels.get(_TOPOLOGY, ""),
                "" if cpu else labels.get(_TYPE, ""),
                "on-demand" if cpu else "reservation" if reservation else provisioning,
                "" if cpu else reservation,
            )
        ] += 1
    notes = [
        f'{count} nodes have the unknown accelerator "{label}"; add it to common.accelerators.'
        for label, count in unknown.items()
    ]
    return dict(found), notes


def values_of(groups: Mapping[Group, int], capacity: Mapping[str, float]) -> Adopted:
    """Return flavors and one queue with all that the nodes have.

    capacity: `cpu` in cores and `memory` in GiB that pods can request on the nodes without accelerators.
    """
    table = chart_defaults("run").tree["common"]["accelerators"]
    flavors: dict[str, Any] = {}
    quota: dict[str, Any] = {}
    notes = []
    for group, nodes in sorted(groups.items(), key=lambda item: item[0].name):
        flavor: dict[str, Any] = {"accelerator": group.accelerator}
        if group.accelerator == "cpu":
            flavors["cpu"] = flavor
            quota["cpu"] = {"cpu": str(int(capacity["cpu"])), "memory": f"{int(capacity['memory'])}Gi"}
            continue
        wanted = {"accelerator": group.accelerator, "topology": group.topology, "machineType": "", "hosts": 0}
        try:
            default = accelerators.resolve(wanted, table)
            if group.machine_type and group.machine_type != default.machine_type:
                default = accelerators.resolve({**wanted, "machineType": group.machine_type}, table)
                flavor["machineType"] = group.machine_type
        except accelerators.SliceError as error:
            notes.append(f"{nodes} nodes of {group.name} were left out: {error.message}")
            continue
        flavor |= {"topology": group.topology} if group.topology else {}
        flavor |= {"provisioning": group.provisioning} if group.provisioning != "on-demand" else {}
        flavor |= {"reservation": group.reservation} if group.reservation else {}
        slices, rest = divmod(nodes, default.hosts)
        if rest:
            notes.append(f"{group.name}: {nodes} nodes are not a multiple of {default.hosts}, the hosts of a slice.")
        flavors[group.name] = flavor
        quota[group.name] = {"slices": slices}
    return Adopted({"flavors": flavors, "clusterQueues": {"all": {"quota": quota}}}, notes)


def of_gke(project: str, location: str, name: str) -> dict[str, Any]:
    """Return the values under `gke` of an existing GKE cluster. Raises GoogleError if it cannot be read."""
    found = Google().get("CONTAINER", f"v1/projects/{project}/locations/{location}/clusters/{name}") or {}
    labels = {key: value for key, value in (found.get("resourceLabels") or {}).items() if key != MANAGED_LABEL}
    autopilot = bool((found.get("autopilot") or {}).get("enabled"))
    channel = str((found.get("releaseChannel") or {}).get("channel") or "regular").lower()
    zones = found.get("locations") or []
    values: dict[str, Any] = {"project": project, "location": location, "name": name, "releaseChannel": channel}
    values |= {"mode": "autopilot"} if autopilot else {}
    values |= {"zone": str(zones[0])} if zones and zones[0] != location and not autopilot else {}
    values |= {"labels": labels} if labels else {}
    values |= {"rayOperator": bool(((found.get("addonsConfig") or {}).get("rayOperatorConfig") or {}).get("enabled"))}
    return values
