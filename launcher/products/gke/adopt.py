"""Values for an existing cluster: flavors, quota and the key `gke`, from its nodes and, on GKE, from its API."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from launcher.config import accelerators
from launcher.config.accelerators import GPU_LABEL, NVIDIA_RESOURCE, TPU_LABEL, label_key
from launcher.config.values.files import chart_defaults
from launcher.k8s.nodes import Node
from launcher.k8s.objects import Object
from launcher.products.common.gpus import PARTS, division
from launcher.products.gke.google import Google
from launcher.products.gke.plan import MANAGED_LABEL

_TOPOLOGY, _POOL = "cloud.google.com/gke-tpu-topology", "cloud.google.com/gke-nodepool"
_NVIDIA, _AMD = "nvidia.com/gpu.product", "amd.com/gpu.product-name"
_TYPE, _ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
_PROVISIONING = (("cloud.google.com/gke-spot", "spot"), ("cloud.google.com/gke-flex-start", "flex-start"))

# The products that NVIDIA's GPU feature discovery writes into the label, such as NVIDIA-A100-SXM4-80GB, and their rows.
_PRODUCTS = (
    (r"H100-80GB.*|H100-PCIe", "h100-80gb"),
    (r"H200.*", "h200"),
    (r"B200.*", "b200"),
    (r"A100-.*80GB.*", "a100-80gb"),
    (r"A100-.*40GB.*", "a100-40gb"),
    (r"L4", "l4"),
)
_WHOLE = re.compile(r"(nvidia|amd)\.com/gpu|google\.com/tpu")
# Extended resources of networks, not of accelerators.
_NETWORK = ("vpc.amazonaws.com/", "networking.gke.io", "rdma/")
# Taints that follow the state of a node.
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node.cilium.io/", "DeletionCandidateOf")


@dataclass(frozen=True)
class Group:
    """Nodes with the same accelerator, shape and provisioning: a flavor.

    Off GKE, `label` is the node label of its GPUs with its value, `resource` their resource, and `gpus` the number of
    GPUs of a node.
    """

    accelerator: str
    topology: str
    machine_type: str
    provisioning: str
    reservation: str
    label: tuple[str, str] = ("", "")
    resource: str = ""
    gpus: int = 0

    @property
    def name(self) -> str:
        """The name of the flavor, such as v6e-4x4-spot."""
        parts = [self.accelerator, self.topology, "" if self.provisioning == "on-demand" else self.provisioning]
        return "-".join(filter(None, parts))


_CPU = Group("cpu", "", "", "on-demand", "")


@dataclass(frozen=True)
class Adopted:
    """`values` for launcher cluster and launcher install queues, and sentences about what was left out."""

    values: Mapping[str, Any]
    notes: Sequence[str]


def is_plain(node: Object) -> bool:
    """Return whether a node is for CPUs: no label of an accelerator, no extended resource, no taint of its own."""
    return _group(Node(node), {}) == _CPU


def capacity(nodes: Iterable[Object]) -> dict[str, float]:
    """Return the cores and the GiB of memory that pods can request on the nodes for CPUs."""
    plain = [Node(node) for node in nodes if is_plain(node)]
    units = {"cpu": 1, "memory": 2**30}
    return {name: float(sum(node.allocatable(name) for node in plain)) / unit for name, unit in units.items()}


def _extended(node: Node) -> list[str]:
    """Return the extended resources of a node that can be accelerators."""
    return sorted(
        name
        for name in node.status.get("allocatable") or {}
        if "/" in name and "kubernetes.io/" not in name and not name.startswith(_NETWORK) and node.allocatable(name)
    )


def from_nodes(nodes: Iterable[Object]) -> tuple[dict[Group, int], list[str]]:
    """Return the number of nodes of each group, and a sentence for the nodes of each kind that are left out."""
    table = chart_defaults("run").tree["common"]["accelerators"]
    counts: Counter[Group] = Counter()
    left: Counter[str] = Counter()
    for node in nodes:
        group = _group(Node(node), table)
        if isinstance(group, str):
            left[group] += 1
        else:
            counts[group] += 1
    notes = [f"{count} {'node has' if count == 1 else 'nodes have'} {why}" for why, count in left.items()]
    return dict(counts), notes


def _group(node: Node, table: Mapping[str, Any]) -> Group | str:
    """Return the group of a node, or why it is in none, as the end of "2 nodes have …"."""
    labels = node.labels
    key = next((key for key in (TPU_LABEL, GPU_LABEL, _NVIDIA, _AMD) if labels.get(key)), "")
    label = str(labels.get(key, ""))
    extended = _extended(node)
    if not key and not extended:
        taint = next((each for each in node.taints if each.repels and not each.key.startswith(_PASSING)), None)
        return f"the taint {taint}, which runs do not tolerate; they are left out." if taint else _CPU
    if divided := division(node):
        return f"{PARTS.format(divided)}; they are left out."
    resource = next((name for name in extended if _WHOLE.fullmatch(name)), "")
    if not key:
        return f"the extended resource {extended[0]} and no label that names the accelerator; they are left out."
    name = _row(key, label, table)
    if not name:
        where = "" if key in (TPU_LABEL, GPU_LABEL) else f", with labelKey: {key}"
        return f'the unknown accelerator "{label}"; add it to common.accelerators{where}.'
    reservation = labels.get("cloud.google.com/reservation-name", "")
    found = ["reservation"] * bool(reservation) + [how for key, how in _PROVISIONING if labels.get(key) == "true"]
    group = Group(name, labels.get(_TOPOLOGY, ""), labels.get(_TYPE, ""), [*found, "on-demand"][0], reservation)
    if key in (TPU_LABEL, GPU_LABEL):
        return group
    if not resource:
        return f"the label {key}: {label} and no GPUs that pods can request; they are left out."
    return replace(group, label=(key, label), resource=resource, gpus=int(node.allocatable(resource)))


def _row(key: str, label: str, table: Mapping[str, Any]) -> str:
    """Return the row of the table with that label, or ""."""
    for name, row in table.items():
        if row["label"] and (label_key(row), row["label"]) == (key, label):
            return name
    if key == _NVIDIA:
        product = label.removeprefix("NVIDIA-").removeprefix("Tesla-")
        return next((row for pattern, row in _PRODUCTS if re.fullmatch(pattern, product)), "")
    return ""


def values_of(groups: Mapping[Group, int], capacity: Mapping[str, float]) -> Adopted:
    """Return flavors and one queue with all that the nodes have.

    capacity: `cpu` in cores and `memory` in GiB that pods can request on the nodes without accelerators.
    """
    table = chart_defaults("run").tree["common"]["accelerators"]
    flavors: dict[str, Any] = {}
    quota: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    notes = []
    for group, nodes in sorted(groups.items(), key=lambda item: item[0].name):
        flavor: dict[str, Any] = {"accelerator": group.accelerator}
        if group.accelerator == "cpu":
            flavors["cpu"] = flavor
            quota["cpu"] = {"cpu": str(int(capacity["cpu"])), "memory": f"{int(capacity['memory'])}Gi"}
            continue
        if group.gpus:
            row = _own_row(group, rows.get(group.accelerator, {}))
            if row["label"] != group.label[1]:
                notes.append(
                    f"{nodes} nodes have the accelerator {group.label[1]}, and others {row['label']}: one row of "
                    f"common.accelerators, {group.accelerator}, cannot have both; add a row. They are left out."
                )
                continue
            rows[group.accelerator] = row
            table = {**table, group.accelerator: {**table[group.accelerator], **row}}
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
        name = group.name if group.name not in flavors else f"{group.name}-{default.machine_type}"
        flavors[name] = flavor
        quota[name] = {"slices": slices}
    own = {"common": {"accelerators": rows}} if rows else {}
    return Adopted({**own, "flavors": flavors, "clusterQueues": {"all": {"quota": quota}}}, notes)


def _own_row(group: Group, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a row of the table that differ off GKE, added to `row`. Runs on these GPUs need them, too."""
    machine = group.machine_type or f"{group.accelerator}-{group.gpus}"
    key, label = group.label
    own = {"labelKey": key, "label": label, "machineTypes": {}, "defaultMachineType": machine, **row}
    if group.resource != NVIDIA_RESOURCE:
        own["resource"] = group.resource
    return {**own, "machineTypes": {**own["machineTypes"], machine: group.gpus}}


def of_gke(project: str, location: str, name: str) -> dict[str, Any]:
    """Return the values under `gke` of an existing GKE cluster. Raises GoogleError if it cannot be read."""
    cluster = Google().get("CONTAINER", f"v1/projects/{project}/locations/{location}/clusters/{name}") or {}
    labels = {key: value for key, value in (cluster.get("resourceLabels") or {}).items() if key != MANAGED_LABEL}
    autopilot = bool((cluster.get("autopilot") or {}).get("enabled"))
    channel = str((cluster.get("releaseChannel") or {}).get("channel") or "regular").lower()
    zones = cluster.get("locations") or []
    values: dict[str, Any] = {"project": project, "location": location, "name": name, "releaseChannel": channel}
    values |= {"mode": "autopilot"} if autopilot else {}
    values |= {"zone": str(zones[0])} if zones and zones[0] != location and not autopilot else {}
    values |= {"labels": labels} if labels else {}
    values |= {"rayOperator": bool(((cluster.get("addonsConfig") or {}).get("rayOperatorConfig") or {}).get("enabled"))}
    return values
