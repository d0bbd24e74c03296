"""The plan of a cluster: its resources, derived from the values. Makes no request."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.config import accelerators
from launcher.config.checks.problems import Problem
from launcher.k8s.objects import quantity
from launcher.products.gke.values import ClusterValues

MANAGED_LABEL = "slipway-cluster"
"""The label of the resources that Slipway made; its value is the name of the cluster."""
TEAM_LABEL = "slipway-team"
"""The label of a team's bucket."""
_ZONE = re.compile(r"([a-z]+-[a-z]+[0-9]+)-[a-z]")
_VCPUS = re.compile(r".*-([0-9]+)")
# GiB of memory per core. Sources: Google's pages on machine families.
_MEMORY_PER_CORE = {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0}
# The share of a node that pods can request: the kubelet, GKE's agents and DaemonSets need the rest.
_ALLOCATABLE_CORES, _ALLOCATABLE_MEMORY = 0.94, 0.85


@dataclass(frozen=True)
class Pool:
    """A node pool.

    A TPU slice of several hosts is a pool of its own, because GKE creates such a pool as a whole: it has 0 or `hosts`
    nodes. Slices of one host share a pool. `min_slices` and `max_slices` are those of this pool; for cpu, a slice is a
    node. `seconds` is the longest run of a flex-start node, or 0.
    """

    name: str
    flavor: str
    accelerator: str
    kind: str
    machine_type: str
    hosts: int
    chips_per_host: int
    min_slices: int
    max_slices: int
    topology: str = ""
    gpu_label: str = ""
    provisioning: str = "on-demand"
    reservation: str = ""
    queued: bool = False
    seconds: int = 0
    compact: bool = False
    disk: str = ""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()

    @property
    def min_nodes(self) -> int:
        return self.min_slices * self.hosts

    @property
    def max_nodes(self) -> int:
        return self.max_slices * self.hosts

    @property
    def whole_slice(self) -> bool:
        """Whether GKE creates and deletes all nodes of the pool together."""
        return self.kind == "tpu" and self.hosts > 1

    @property
    def chips(self) -> int:
        """The number of chips of one slice; 0 for cpu."""
        return 0 if self.kind == "cpu" else self.hosts * self.chips_per_host


@dataclass(frozen=True)
class Member:
    """A principal with a role on a bucket: a team's service account."""

    team: str
    namespace: str
    account: str
    google_account: str = ""
    """The Google service account that the Kubernetes service account uses, if its annotation names one."""


@dataclass(frozen=True)
class Bucket:
    """A bucket, and the service accounts that may change its objects. `team` is "" for the bucket of all teams."""

    name: str
    team: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Plan:
    """The resources of a cluster; `values` are the effective values under `gke`.

    `sharing_is_set`: whether the user's values have the key gke.bucket.shared.
    """

    values: Mapping[str, Any]
    queues: Mapping[str, Any]
    queues_user: Mapping[str, Any]
    """The user's values for charts/queues."""
    pools: tuple[Pool, ...]
    members: tuple[Member, ...]
    limits: Mapping[str, int]
    """With auto-provisioning: the maximum number of chips or GPUs, by GKE's name of the accelerator."""
    warnings: tuple[Problem, ...] = ()
    sharing_is_set: bool = False

    @property
    def name(self) -> str:
        return str(self.values["name"])

    @property
    def project(self) -> str:
        return str(self.values["project"])

    @property
    def location(self) -> str:
        return str(self.values["location"])

    @property
    def region(self) -> str:
        return region_of(self.location)

    @property
    def network(self) -> tuple[str, str]:
        """The project and the name of the network, which gke.network.name has as NAME, or as
        projects/PROJECT/global/networks/NAME."""
        parts = str(self.values["network"]["name"] or "default").split("/")
        return (parts[1] if parts[0] == "projects" and len(parts) > 1 else self.project), parts[-1]

    @property
    def zone(self) -> str:
        """The zone of the accelerators; "" if a region has none set."""
        return self.location if is_zone(self.location) else str(self.values["zone"])

    @property
    def autopilot(self) -> bool:
        return bool(self.values["mode"] == "autopilot")

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """A bucket for each team, or one for all (gke.bucket.shared); () without gke.bucket.name."""
        name = str(self.values["bucket"]["name"])
        if not name:
            return ()
        if self.values["bucket"]["shared"]:
            return (Bucket(name, "", self.members),)
        return tuple(Bucket(bucket_of(name, member.team), member.team, (member,)) for member in self.members)

    @property
    def registry(self) -> str:
        return str(self.values["registry"]["name"])

    @property
    def bucket_location(self) -> str:
        return str(self.values["bucket"]["location"] or self.region)

    @property
    def registry_location(self) -> str:
        return str(self.values["registry"]["location"] or self.region)

    @property
    def node_account(self) -> str:
        """The address of the nodes' service account."""
        return f"{self.values['nodeServiceAccount']['name']}@{self.project}.iam.gserviceaccount.com"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every resource that can have labels."""
        return {**self.values["labels"], MANAGED_LABEL: self.name}

    @property
    def google_accounts(self) -> tuple[str, ...]:
        """The addresses of the teams' Google service accounts in this project."""
        domain = f"@{self.project}.iam.gserviceaccount.com"
        return tuple(sorted({m.google_account for m in self.members if m.google_account.endswith(domain)}))


def make(values: ClusterValues, warnings: tuple[Problem, ...] = ()) -> Plan:
    """Return the plan of valid values (see rules.problems)."""
    cluster = values.cluster
    autopilot = cluster["mode"] == "autopilot"
    pools = () if autopilot else tuple(_pools(cluster, values.queues))
    limits: dict[str, int] = {}
    if cluster["autoProvisioning"]["enabled"]:
        kept = []
        for pool in pools:
            if pool.kind != "cpu" and pool.provisioning in ("on-demand", "spot"):
                label = str(values.queues["common"]["accelerators"][pool.accelerator]["label"])
                limits[label] = limits.get(label, 0) + pool.max_slices * pool.chips
            else:
                kept.append(pool)
        pools = tuple(kept)
    return Plan(
        cluster,
        values.queues,
        values.queues_user.tree,
        pools,
        tuple(_members(values.queues)),
        limits,
        warnings,
        sharing_is_set="shared" in (values.user.tree["gke"].get("bucket") or {}),
    )


def bucket_of(name: str, team: str) -> str:
    """Return the name of a team's bucket; `name` is gke.bucket.name."""
    return f"{name}-{team}"


def region_of(location: str) -> str:
    """Return the region of a zone or region."""
    zone = _ZONE.fullmatch(location)
    return zone[1] if zone else location


def is_zone(location: str) -> bool:
    return _ZONE.fullmatch(location) is not None


def quota_slices(flavor: str, queues: Mapping[str, Any]) -> int:
    """Return the sum of the nominal quota of a flavor, in slices."""
    return sum(int(quota.get("slices") or 0) for quota in _quotas(flavor, queues))


def _quotas(flavor: str, queues: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for owner in [*queues["clusterQueues"].values(), *queues["cohorts"].values()]:
        if owner and (quota := (owner.get("quota") or {}).get(flavor)):
            yield quota


def cpu_nodes(flavor: str, queues: Mapping[str, Any], machine_type: str) -> int:
    """Return how many nodes of the machine type the quota of a cpu flavor needs; 0 if the type's size is not known."""
    cores, gib = machine_size(machine_type)
    if not cores:
        return 0
    cpu = sum(float(quantity(str(quota.get("cpu") or 0))) for quota in _quotas(flavor, queues))
    memory = sum(float(quantity(str(quota.get("memory") or 0))) for quota in _quotas(flavor, queues)) / 2**30
    return max(math.ceil(cpu / (cores * _ALLOCATABLE_CORES)), math.ceil(memory / (gib * _ALLOCATABLE_MEMORY)))


def machine_size(machine_type: str) -> tuple[int, float]:
    """Return the cores and GiB of a machine type such as n2-standard-16; zeros if its name does not contain them."""
    named = _VCPUS.fullmatch(machine_type)
    ratio = next((gib for family, gib in _MEMORY_PER_CORE.items() if f"-{family}-" in machine_type), 0.0)
    return (int(named[1]), int(named[1]) * ratio) if named and ratio else (0, 0.0)


def _pools(cluster: Mapping[str, Any], queues: Mapping[str, Any]) -> Iterator[Pool]:
    for name, flavor in queues["flavors"].items():
        if flavor is not None and flavor.get("create", True):
            yield from _pools_of(name, flavor, cluster, queues)


def _pools_of(
    name: str, flavor: Mapping[str, Any], cluster: Mapping[str, Any], queues: Mapping[str, Any]
) -> Iterator[Pool]:
    over = cluster["pools"].get(name) or {}
    slice_ = accelerators.of_flavor(flavor, queues)
    machine = slice_.machine_type or cluster["cpu"]["machineType"]
    quota = cpu_nodes(name, queues, machine) if slice_.kind == "cpu" else quota_slices(name, queues)
    slices = quota if over.get("maxSlices") is None else over["maxSlices"]
    kept = over.get("minSlices") or 0
    if not slices:
        return
    provisioning = flavor.get("provisioning") or "on-demand"
    flex = provisioning == "flex-start"
    row = queues["common"]["accelerators"][slice_.accelerator]
    compact = over.get("compactPlacement")
    shared: dict[str, Any] = {
        "flavor": name,
        "accelerator": slice_.accelerator,
        "kind": slice_.kind,
        "machine_type": machine,
        "hosts": slice_.hosts,
        "chips_per_host": slice_.chips_per_host,
        "topology": slice_.topology if slice_.hosts > 1 or row["dimensions"] == 3 else "",
        "gpu_label": row["label"] if slice_.kind == "gpu" else "",
        "provisioning": provisioning,
        "reservation": reservation_path(flavor, over, cluster["project"]),
        "queued": flex and over.get("queuedProvisioning") is not False,
        "seconds": seconds(over.get("maxRunDuration") or ("7d" if flex else "")),
        "compact": slice_.kind == "gpu" and slice_.hosts > 1 if compact is None else compact,
        "disk": over.get("secondaryBootDisk") or "",
        "node_labels": dict(flavor.get("nodeLabels") or {}),
        "taints": tuple(_taint(taint) for taint in (flavor.get("taints") or {}).values() if taint),
    }
    if slice_.kind != "tpu" or slice_.hosts == 1:
        yield Pool(name, min_slices=kept, max_slices=slices, **shared)
        return
    for number in range(1, slices + 1):
        yield Pool(f"{name}-{number}", min_slices=int(number <= kept), max_slices=1, **shared)


def reservation_path(flavor: Mapping[str, Any], over: Mapping[str, Any], project: str) -> str:
    """Return the reservation as GKE names it: its name, or a path if it has a project or a block; "" without one."""
    name = str(flavor.get("reservation") or "")
    owner, block, part = (over.get(f"reservation{key}") or "" for key in ("Project", "Block", "SubBlock"))
    if not name or not (owner or block):
        return name
    path = f"projects/{owner or project}/reservations/{name}"
    path += f"/reservationBlocks/{block}" if block else ""
    return path + (f"/reservationSubBlocks/{part}" if part else "")


def _taint(taint: Mapping[str, Any]) -> str:
    return f"{taint['key']}={taint.get('value') or ''}:{taint.get('effect') or 'NoSchedule'}"


def seconds(text: str) -> int:
    """Return the seconds of a duration such as 7d, 36h, 90m or 600s; 0 of "". Raises ValueError if it is not one."""
    if not text:
        return 0
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _members(queues: Mapping[str, Any]) -> Iterator[Member]:
    for team, entry in queues["teams"].items():
        if entry is None:
            continue
        account = entry.get("serviceAccount") or {}
        annotations = account.get("annotations") or {}
        yield Member(
            team,
            entry.get("namespace") or team,
            account.get("name") or (team if account.get("create", True) else "default"),
            annotations.get("iam.gke.io/gcp-service-account") or "",
        )
