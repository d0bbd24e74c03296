"""Check that quota and nodes match: flavors without nodes, nodes without a flavor, too many or too few chips.

Pure functions; one pass over the nodes.

A pod with an assigned flavor selects nodes by the flavor's labels. It has the flavor's tolerations. It also tolerates
the flavor's own taints (Kueue would not assign the flavor otherwise), and the taint of the chips, which all pods of the
charts tolerate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

from launcher.config.accelerators import AMD_RESOURCE, CHIPS, GPU_LABEL, NVIDIA_RESOURCE, TPU_LABEL, TPU_RESOURCE
from launcher.diagnose.doctor.finding import CAPACITY, Finding, Level, join_words, many
from launcher.k8s import label_keys
from launcher.k8s.nodes import Node, Taint, Toleration
from launcher.products.common.gpus import PARTS, division

if TYPE_CHECKING:
    from launcher.diagnose.doctor.inventory import ClusterInventory
    from launcher.k8s.kueue.queues import QuotaOwner, ResourceFlavor, Topology


# The resource names of chips in charts/common (common.resource), and the node labels for them: GKE's, and those of
# NVIDIA's GPU feature discovery and of AMD's node labeller.
TPU, GPU, AMD = TPU_RESOURCE, NVIDIA_RESOURCE, AMD_RESOURCE
_LABELS = {TPU: (TPU_LABEL,), GPU: (GPU_LABEL, "nvidia.com/gpu.product"), AMD: ("amd.com/gpu.product-name",)}
_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
_POOL = "cloud.google.com/gke-nodepool"
_SPOT = "cloud.google.com/gke-spot"
# Temporary taints that follow a node's state. The node's conditions show whether it is usable now.
_PASSING = (
    *("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "cloud.google.com/impending-node-termination"),
    *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"),
)


@dataclass(frozen=True)
class Flavor:
    """A ResourceFlavor, with its total quota in all queues and cohorts, by resource."""

    name: str
    labels: Mapping[str, str]
    tolerations: Sequence[Toleration]
    topology: str
    quota: Mapping[str, Decimal]

    @cached_property
    def chips(self) -> str:
        """The resource name of the flavor's chips; "" for a CPU flavor."""
        # Not a quota of 0: Kueue needs a quota for each resource of a group in each flavor.
        by_quota = next((resource for resource in CHIPS if self.quota.get(resource)), "")
        by_label = next((resource for resource, keys in _LABELS.items() if self.labels.keys() & keys), "")
        return by_quota or by_label

    def matches(self, node: Node) -> bool:
        return node.has(self.labels)

    def refuses(self, node: Node) -> Taint | None:
        """Return the first taint of the node that this flavor's pods do not tolerate, or None."""
        for taint in node.taints:
            passing = taint.key.startswith(_PASSING) or taint.effect == "PreferNoSchedule"
            if not passing and not taint.tolerated(self.tolerations):
                return taint
        return None


def flavors(objects: Iterable[ResourceFlavor], owners: Iterable[QuotaOwner]) -> list[Flavor]:
    """Return the flavors, with the quota that the owners have in them, without those that only running runs keep."""
    quota: defaultdict[str, defaultdict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for owner in owners:
        for (flavor, resource), own in owner.quotas.items():
            quota[flavor][resource] += own.nominal
    chips = [Toleration(resource, "Exists", effect="NoSchedule") for resource in CHIPS]
    made = []
    for obj in objects:
        if obj.label(label_keys.RETIRED):
            continue
        taints = [Toleration(taint.key, "Exists") for taint in obj.node_taints]
        tolerations = [*obj.tolerations, *taints, *chips]
        made.append(Flavor(obj.name, obj.node_labels, tolerations, obj.topology, dict(quota[obj.name])))
    return made


# --- the rules -----------------------------------------------------------------------------------------------------


def examine(sight: ClusterInventory, table: Mapping[str, Any]) -> Iterator[Finding]:
    """Return findings on flavors and nodes. `table` is the accelerator table, for readable names."""
    if sight.nodes.seen is None:
        yield _finding(Level.UNKNOWN, "nodes", f"{sight.nodes.says}.")
        return
    nodes = [node for node in sight.nodes.seen if not division(node)]
    if divided := sorted(filter(None, map(division, sight.nodes.seen))):
        says = f"{many(len(divided), 'node')} with {PARTS.format(divided[0])}."
        yield _finding(Level.WARNING, "GPUs", says, _PARTS_HINT)
    if sight.flavors.seen is None:
        yield _finding(Level.OK, "nodes", f"{_inventory(nodes, table)}.")
        if sight.flavors.forbidden:
            yield _finding(Level.UNKNOWN, "flavors", f"{sight.flavors.says}.")
        return
    owners: list[QuotaOwner] = [*(sight.cluster_queues.seen or []), *(sight.cohorts.seen or [])]
    known = sight.cluster_queues.seen is not None
    those = flavors(sight.flavors.seen, owners)
    if not those:
        yield _finding(Level.WARNING, "flavors", "there is no ResourceFlavor, so there is no quota.", _QUEUES_HINT)
    matched = {flavor.name: [node for node in nodes if flavor.matches(node)] for flavor in those}
    own = _own_nodes(those, nodes)
    topologies = {topology.name: topology for topology in sight.topologies.seen or []}
    for flavor in those:
        findings = [
            *_flavor(flavor, matched[flavor.name], own[flavor.name], nodes, table, known),
            *_levels(flavor, matched[flavor.name], topologies, seen=sight.topologies.seen is not None),
        ]
        # Omit a flavor's OK findings if it has any other finding.
        yield from [finding for finding in findings if finding.level is not Level.OK] or findings
    yield from _shared(those, nodes)
    yield from _uncovered(those, nodes, table)


_PARTS_HINT = "A run of a flavor that selects them gets parts of GPUs: taint them, or add nodeLabels to the flavor."
_GROW_HINT = "This is fine if its node pools can grow that far. Otherwise runs are admitted and then wait for nodes."
_QUEUES_HINT = "launcher install queues creates them from values like values/queues/three-teams.yaml."


def _flavor(
    flavor: Flavor,
    matched: Sequence[Node],
    own: Sequence[Node],
    nodes: Sequence[Node],
    table: Mapping[str, Any],
    known: bool,
) -> Iterator[Finding]:
    subject = f"flavor {flavor.name}"
    if known and not flavor.quota:
        yield _finding(
            Level.WARNING,
            subject,
            "no ClusterQueue or Cohort has quota for it, so no run can use its nodes.",
            _QUEUES_HINT,
        )
    if not matched:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(flavor.labels.items()))
        yield _finding(
            Level.WARNING,
            subject,
            f"no node matches it now ({labels or 'the cluster has no nodes'}).",
            _near(flavor, nodes, table)
            or "This is fine if a node pool with these labels scales from zero. Otherwise its nodes never appear, "
            "and its runs are admitted and then wait.",
        )
        return
    refused = Counter(taint for node in matched if (taint := flavor.refuses(node)))
    if refused:
        level = Level.PROBLEM if refused.total() == len(matched) else Level.WARNING
        yield _finding(
            level if flavor.chips or level is Level.PROBLEM else Level.OK,
            subject,
            f"{refused.total()} of its {many(len(matched), 'node')} have a taint that its runs do not tolerate: "
            f"{join_words(map(str, refused))}.",
            f"If these nodes are for its runs, add the toleration to the flavor (flavors.{flavor.name}.tolerations in "
            "charts/queues)."
            if flavor.chips or level is Level.PROBLEM
            else "",
        )
    if flavor.chips and known and flavor.quota:
        yield _quota(flavor, subject, [node for node in own if not flavor.refuses(node)])
        return
    lacking = [] if flavor.chips or not known else _lacking(flavor, matched)
    if lacking:
        yield _finding(Level.WARNING, subject, f"quota for {join_words(lacking)} now.", _GROW_HINT)
    elif not refused:
        yield _finding(Level.OK, subject, f"{many(len(matched), 'node')}{_unfit(matched)}.")


def _lacking(flavor: Flavor, matched: Sequence[Node]) -> list[str]:
    """Return the amounts of cpu and memory in the quota that the nodes without chips do not have, as text.

    Not nodes with chips, although the pods of charts/run tolerate their taint: these are for the hosts of slices.
    """
    nodes = [node for node in matched if not any(map(node.allocatable, CHIPS)) and not flavor.refuses(node)]
    amounts = []
    for resource, unit, word in (("cpu", Decimal(1), " cores"), ("memory", Decimal(2**30), "Gi of memory")):
        quota = flavor.quota.get(resource, Decimal())
        there = sum((node.allocatable(resource) for node in nodes), Decimal())
        if there and quota > there:
            amounts.append(f"{quota / unit:.0f}{word}, but {there / unit:.0f}{word} on {many(len(nodes), 'node')}")
    return amounts


def _quota(flavor: Flavor, subject: str, nodes: Sequence[Node]) -> Finding:
    quota = flavor.quota.get(flavor.chips, Decimal())
    there = _chips(nodes, flavor.chips)
    have = f"{_amount(there)} on {many(len(nodes), 'node')}{_unfit(nodes)}"
    if there == quota:
        return _finding(Level.OK, subject, f"quota for {_amount(quota)}; {have}.")
    if there < quota:
        return _finding(Level.WARNING, subject, f"quota for {_amount(quota)}, but there are {have} now.", _GROW_HINT)
    return _finding(
        Level.WARNING,
        subject,
        f"quota for {_amount(quota)}, but there are {have}; no run can use the other {_amount(there - quota)}.",
        "Add them to the quota of a queue or a cohort (clusterQueues.NAME.quota in charts/queues).",
    )


def _levels(
    flavor: Flavor, nodes: Sequence[Node], topologies: Mapping[str, Topology], *, seen: bool
) -> Iterator[Finding]:
    if not flavor.topology or not seen:
        return
    subject = f"flavor {flavor.name}"
    topology = topologies.get(flavor.topology)
    if topology is None:
        yield _finding(
            Level.PROBLEM,
            subject,
            f"its Topology {flavor.topology} does not exist, so Kueue keeps its queues inactive.",
            "Create it (topologies in charts/queues), or use a flavor without topologyName.",
        )
        return
    for key in topology.levels:
        bare = [node for node in nodes if not node.label(key)]
        if bare:
            yield _finding(
                Level.WARNING,
                subject,
                f"{len(bare)} of its {many(len(nodes), 'node')} lack the label {key} of the Topology "
                f"{flavor.topology}, so Kueue places no pods on them.",
                "Label them, or remove the level.",
            )


def _own_nodes(those: Sequence[Flavor], nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Return the nodes of each chip flavor. A node belongs to the matching flavor with the most labels."""
    own: dict[str, list[Node]] = {flavor.name: [] for flavor in those}
    for node in nodes:
        fit = [flavor for flavor in those if flavor.chips and node.allocatable(flavor.chips) and flavor.matches(node)]
        most = max((len(flavor.labels) for flavor in fit), default=0)
        for flavor in fit:
            if len(flavor.labels) == most:
                own[flavor.name].append(node)
    return own


def _shared(those: Sequence[Flavor], nodes: Sequence[Node]) -> Iterator[Finding]:
    """Report nodes whose chips are in the quota of several flavors."""
    together: Counter[tuple[str, ...]] = Counter()
    for node in nodes:
        fit = [each for each in those if each.chips in each.quota and node.allocatable(each.chips)]
        names = tuple(each.name for each in fit if each.matches(node) and not each.refuses(node))
        if len(names) > 1:
            together[names] += 1
    for found, count in together.items():
        yield _finding(
            Level.WARNING,
            f"flavors {join_words(found)}",
            f"{many(count, 'node')} match{'es' if count == 1 else ''} all of them, so runs of one flavor can use chips "
            "that are in the quota of another.",
            "Distinguish them by nodeLabels, or taint the nodes of one flavor, as is possible for GKE's spot nodes.",
        )


def _uncovered(those: Sequence[Flavor], nodes: Sequence[Node], table: Mapping[str, Any]) -> Iterator[Finding]:
    groups: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in nodes:
        for resource in CHIPS:
            covered = any(
                flavor.matches(node) for flavor in those if resource in flavor.quota or flavor.chips == resource
            )
            if node.allocatable(resource) and not covered:
                groups[resource, _shape(node, table)].append(node)
    for (resource, what), some in sorted(groups.items()):
        yield _finding(
            Level.WARNING,
            f"{what}{_pools(some)}",
            f"{many(len(some), 'node')} {'matches' if len(some) == 1 else 'match'} no flavor, so no run can use "
            f"{_amount(_chips(some, resource))}.",
            "To make them available to runs, add a flavor" + _example(some[0], resource, table),
        )


def _shape(node: Node, table: Mapping[str, Any]) -> str:
    """Return the shape of a node from its labels: "v5e 2x4", "h100-80gb spot"."""
    resource = next((one for one in CHIPS if node.allocatable(one)), TPU)
    accelerator = _accelerator(node.labels, resource)[1]
    words = [_row(accelerator, table) or accelerator or resource, node.label(_TOPOLOGY)]
    words.append("spot" if node.label(_SPOT) == "true" else "")
    return " ".join(filter(None, words))


def _pools(nodes: Sequence[Node]) -> str:
    """Return " (pool a)" or " (10 pools)"; "" if the labels name no pool."""
    pools = {node.label(_POOL) for node in nodes} - {""}
    if not pools:
        return ""
    return f" (pool {min(pools)})" if len(pools) == 1 else f" ({len(pools)} pools)"


def _counted(nodes: Iterable[Node], table: Mapping[str, Any]) -> str:
    """Return the number of nodes of each shape: "8 of v5e 2x4 (2 pools) and 2 of v6e 2x4 (pool b)"."""
    shapes: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        shapes[_shape(node, table)].append(node)
    return join_words(f"{len(some)} of {shape}{_pools(some)}" for shape, some in sorted(shapes.items()))


def _example(node: Node, resource: str, table: Mapping[str, Any]) -> str:
    row, topology = _row(_accelerator(node.labels, resource)[1], table), node.label(_TOPOLOGY)
    if not row:
        return "."
    fields = {"accelerator": row, "topology": topology, "provisioning": "spot" * (node.label(_SPOT) == "true")}
    given = ", ".join(f"{key}: {value}" for key, value in fields.items() if value)
    called = "-".join(value for value in fields.values() if value)
    return f": {called}: {{{given}}}, and quota for it."


def _near(flavor: Flavor, nodes: Sequence[Node], table: Mapping[str, Any]) -> str:
    """Suggest a similar label, or existing nodes, for a flavor that no node matches; "" without a suggestion."""
    key, wanted = _accelerator(flavor.labels, flavor.chips)
    real = {str(row["label"]) for row in table.values() if row.get("label")}
    if key in (TPU_LABEL, GPU_LABEL) and wanted not in real and (near := get_close_matches(wanted, sorted(real), n=1)):
        return f"GKE has no {key}={wanted}; did you mean {near[0]}?"
    same = [node for node in nodes if wanted and node.label(key) == wanted]
    if same:
        return f"The cluster has {_counted(same, table)} with this accelerator."
    return ""


def _accelerator(labels: Mapping[str, str], resource: str) -> tuple[str, str]:
    """Return the label for an accelerator and its value; ("", "") if there is none."""
    return next(((key, labels[key]) for key in _LABELS.get(resource, ()) if labels.get(key)), ("", ""))


def _row(accelerator: str, table: Mapping[str, Any]) -> str:
    """Return the table's name of the accelerator with this label, or ""."""
    return next((str(key) for key, row in table.items() if accelerator and row.get("label") == accelerator), "")


def _inventory(nodes: Sequence[Node], table: Mapping[str, Any]) -> str:
    words = _counted((node for node in nodes if any(map(node.allocatable, CHIPS))), table)
    return f"{many(len(nodes), 'node')}{_unfit(nodes)}" + (f", among them {words}" if words else ", no chips")


def _unfit(nodes: Sequence[Node]) -> str:
    """Return how many nodes accept no pods now, in parentheses."""
    cordoned = sum(node.cordoned for node in nodes)
    down = sum(not node.ready for node in nodes)
    words = [f"{down} not ready"] * bool(down) + [f"{cordoned} cordoned"] * bool(cordoned)
    return f" ({', '.join(words)})" if words else ""


def _chips(nodes: Iterable[Node], resource: str) -> Decimal:
    return sum((node.allocatable(resource) for node in nodes), Decimal())


def _amount(chips: Decimal) -> str:
    return many(int(chips), "chip")


def _finding(level: Level, subject: str, says: str, hint: str = "") -> Finding:
    return Finding(CAPACITY, level, subject, says, hint)
