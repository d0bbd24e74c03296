"""Findings on Kueue's configuration, and on the quota and the nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher.config.values.files import chart_defaults
from launcher.config.values.reader import read_text
from launcher.diagnose.doctor.finding import Finding, Level
from launcher.diagnose.doctor.inventory import VISIBILITY, ClusterInventory, Fetched
from launcher.k8s.kueue.queues import ClusterQueue, Cohort, ResourceFlavor, Topology
from launcher.k8s.nodes import Node
from launcher.products.platform.doctor import capacity, cluster_queues, kueue_config
from tests.cluster import doctor_objects as upstream
from tests.unit import test_doctor as doctor
from tests.unit.test_doctor import (
    CPU,
    TPU,
    forbidden,
    healthy,
    parsed,
    ready,
    slice_nodes,
    with_deployments,
    with_queue,
)

HEAD = {"cpu": "8", "memory": "16Gi"}
TABLE: dict[str, Any] = chart_defaults("run").tree["common"]["accelerators"]


def examine(inventory: ClusterInventory) -> list[Finding]:
    """Return the findings of the core's checks, and of these."""
    return [
        *doctor.examine(inventory),
        *kueue_config.examine(inventory),
        *cluster_queues.examine(inventory, HEAD),
        *capacity.examine(inventory, TABLE),
    ]


def not_ok(inventory: ClusterInventory) -> list[tuple[str, str, str]]:
    """Return (level, subject, sentence) of all findings that are not ok."""
    return [(str(one.level), one.subject, one.says) for one in examine(inventory) if one.level is not Level.OK]


def only_finding(inventory: ClusterInventory) -> Finding:
    """Return the only finding that is not ok; fail if there is not exactly one."""
    found = [one for one in examine(inventory) if one.level is not Level.OK]
    assert len(found) == 1, found
    return found[0]


def test_a_cluster_without_problems() -> None:
    assert not_ok(healthy()) == []
    sentences = {one.subject: one.says for one in examine(healthy())}
    assert sentences["flavor v6e-4x4"] == "quota for 16 chips; 16 chips on 4 nodes."
    assert sentences["flavor cpu"] == "6 nodes."


# --- Kueue's configuration -------------------------------------------------------------------------------------------


def config(text: str, version: str = "v0.19.2", **changes: Any) -> list[tuple[str, str, str]]:
    deployments = with_deployments(ready(upstream.kueue(version))).deployments
    return not_ok(healthy(kueue_config=Fetched(upstream.config_map(text)), deployments=deployments, **changes))


def test_frameworks_that_kueue_leaves_alone() -> None:
    ((level, _, sentence),) = config("apiVersion: config.kueue.x-k8s.io/v1beta2\nwaitForPodsReady: {timeout: 3h}\n")
    assert level == "problem"
    assert "lacks ray.io/rayjob, ray.io/raycluster and jobset.x-k8s.io/jobset" in sentence
    assert config(upstream.KUEUE_CONFIG.replace('  - "jobset.x-k8s.io/jobset"\n', ""))[0][2].startswith(
        "integrations.frameworks lacks jobset.x-k8s.io/jobset: runs of kind job-set start without"
    )


@pytest.mark.parametrize(
    ("text", "version", "limit"),
    [
        ("apiVersion: config.kueue.x-k8s.io/v1beta2", (0, 19), "30m"),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2", (0, 18), ""),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2\nwaitForPodsReady: {timeout: 10m}", (0, 18), "10m"),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2\nwaitForPodsReady: {}", (0, 19), "30m"),
        # Kueue 0.19's conversion from v1beta1 drops what is not enabled; the default then applies.
        ("apiVersion: config.kueue.x-k8s.io/v1beta1\nwaitForPodsReady: {enable: false}", (0, 19), "30m"),
        ("apiVersion: config.kueue.x-k8s.io/v1beta1\nwaitForPodsReady: {enable: false}", (0, 16), ""),
        ("apiVersion: config.kueue.x-k8s.io/v1beta1\nwaitForPodsReady: {enable: true}", (0, 16), "5m"),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2\nfeatureGates: {DisableWaitForPodsReady: true}", (0, 19), ""),
    ],
)
def test_how_long_pods_may_take(text: str, version: tuple[int, int], limit: str) -> None:

    assert kueue_config.waits(read_text(text.encode(), "config").tree, version) == limit


def test_the_default_of_30_minutes_is_reported() -> None:
    short = upstream.KUEUE_CONFIG.replace("waitForPodsReady:\n  timeout: 2h\n", "")
    ((level, subject, sentence),) = config(short)
    assert (level, subject) == ("warning", "Kueue's configuration")
    assert "not all ready 30m after its admission is evicted (waitForPodsReady, its default since 0.19)" in sentence
    assert config(short, "v0.18.6") == []
    assert kueue_config.waits({}, (0, 19), ["--feature-gates=A=true,DisableWaitForPodsReady=true"]) == ""


def test_weights_without_fair_sharing() -> None:
    queue = upstream.cluster_queue("research", {"v6e-4x4": {"google.com/tpu": "16"}, "cpu": CPU}, active="True")
    queue["spec"]["fairSharing"] = {"weight": "2"}
    off = (
        upstream.KUEUE_CONFIG.split("fairSharing:")[0] + "integrations" + upstream.KUEUE_CONFIG.split("integrations")[1]
    )
    ((_, _, sentence),) = config(off, cluster_queues=parsed(ClusterQueue, queue))
    assert sentence == "fair sharing is off, so the weights of research have no effect."


def test_queues_ordered_by_usage_without_its_configuration() -> None:
    queue = upstream.cluster_queue("research", {"v6e-4x4": {"google.com/tpu": "16"}, "cpu": CPU}, active="True")
    queue["spec"]["admissionScope"] = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    queues = parsed(ClusterQueue, queue)
    less = "research does not prefer LocalQueues with less usage."
    none = f"admission fair sharing has no usageHalfLifeTime, so every usage is 0: {less}"
    for block, reported in (
        ("", f"admission fair sharing is off: {less}"),
        ("admissionFairSharing: {}\n", none),
        ("admissionFairSharing: {usageHalfLifeTime: 0s, usageSamplingInterval: 5m}\n", none),
    ):
        assert [found[::2] for found in config(upstream.KUEUE_CONFIG + block, cluster_queues=queues)] == [
            ("warning", reported)
        ]
    on = upstream.KUEUE_CONFIG + "admissionFairSharing: {usageHalfLifeTime: 24h}\n"
    assert config(on, cluster_queues=queues) == []


def test_a_configuration_that_is_not_yaml_and_one_that_is_hidden() -> None:
    ((level, _, sentence),) = config("a: [")
    assert level == "problem"
    assert sentence.startswith("Kueue's ConfigMap cannot be read")
    found = only_finding(healthy(kueue_config=forbidden("configmaps", "", "kueue-system")))
    assert (found.level, found.says) == (
        Level.UNKNOWN,
        "you may not list configmaps in the namespace kueue-system.",
    )


def test_no_visibility_api() -> None:
    found = only_finding(healthy(served={**healthy().served, VISIBILITY: Fetched[Any]({})}))
    assert (found.level, found.subject) == (Level.WARNING, "Kueue's visibility")


# --- ClusterQueues ---------------------------------------------------------------------------------------------------


def test_quota_without_resources_for_a_head() -> None:
    found = only_finding(with_queue(TPU))
    assert found.level is Level.PROBLEM
    assert found.says == (
        "has quota for chips but not for cpu and memory: the head of a Ray run requests 8 cores and 16Gi of memory, so "
        "Ray runs wait indefinitely."
    )
    small = only_finding(with_queue({**TPU, "cpu": {"cpu": "4", "memory": "64Gi"}}))
    assert small.says.startswith("its quota, including what it may borrow, is less than the 8 cores that the head")


def test_a_head_may_borrow() -> None:
    queues_of_two = [
        upstream.cluster_queue(
            "research", {**TPU, "cpu": {"cpu": "0", "memory": "0"}}, active="True", cohortName="all"
        ),
        upstream.cluster_queue("product", {"cpu": CPU}, active="True", cohortName="all"),
    ]
    assert not_ok(healthy(cluster_queues=parsed(ClusterQueue, *queues_of_two))) == []


def test_cpu_of_a_tainted_flavor_is_not_for_heads() -> None:
    """charts/queues with hostCpu puts the cpu and the memory of the hosts into the flavor of the chips."""
    taint = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
    flavors = [upstream.tpu_flavor("v6e-4x4", "tpu-v6e-slice", "4x4", nodeTaints=[taint])]
    queue = upstream.cluster_queue("research", {"v6e-4x4": {"google.com/tpu": "16", **CPU}}, active="True")
    found = only_finding(healthy(flavors=parsed(ResourceFlavor, *flavors), cluster_queues=parsed(ClusterQueue, queue)))
    assert "not for cpu and memory" in found.says


def test_queues_that_take_no_runs() -> None:
    quota = {**TPU, "cpu": CPU}
    broken = only_finding(with_queue(quota, "FlavorNotFound: references missing ResourceFlavor(s): v9."))
    assert (broken.level, broken.says) == (
        Level.PROBLEM,
        "admits no runs: references missing ResourceFlavor(s): v9.",
    )
    assert only_finding(with_queue(quota, "Stopped: is stopped")).level is Level.WARNING
    new = only_finding(with_queue(quota, ""))
    assert new.says == "Kueue has not processed research: its controller is not running, or they are new."


# --- quota and nodes -----------------------------------------------------------------------------------------------


def test_a_flavor_that_no_node_matches() -> None:
    found = only_finding(healthy(nodes=parsed(Node, *slice_nodes("c", "cpu", "", 2, 0))))
    assert (found.level, found.subject) == (Level.WARNING, "flavor v6e-4x4")
    assert found.says == (
        "no node matches it now (cloud.google.com/gke-tpu-accelerator=tpu-v6e-slice, "
        "cloud.google.com/gke-tpu-topology=4x4)."
    )
    assert found.hint.startswith("This is fine if a node pool with these labels scales from zero")


def test_a_flavor_that_only_running_runs_keep_is_not_compared_with_nodes() -> None:
    old = upstream.tpu_flavor("v6e-4x4-old", "tpu-v6e-slice", "4x4")
    old["metadata"]["labels"] = {"slipway.dev/retired": "true"}
    before = healthy()
    more = replace(before, flavors=Fetched([*(before.flavors.seen or []), ResourceFlavor(old)]))
    assert list(examine(more)) == list(examine(before))


def test_a_flavor_that_nearly_matches() -> None:
    other = [*slice_nodes("b", "tpu-v6e-slice", "2x4", 2, 4), *slice_nodes("c", "cpu", "", 1, 0)]
    hints = [one.hint for one in examine(healthy(nodes=parsed(Node, *other))) if one.subject == "flavor v6e-4x4"]
    assert hints == ["The cluster has 2 of v6e 2x4 (pool b) with this accelerator."]
    typo = [upstream.tpu_flavor("v6e-4x4", "tpu-v6e", "4x4"), upstream.flavor("cpu")]
    wrong = healthy(flavors=parsed(ResourceFlavor, *typo))
    hints = [one.hint for one in examine(wrong) if one.subject == "flavor v6e-4x4"]
    assert hints == ["GKE has no cloud.google.com/gke-tpu-accelerator=tpu-v6e; did you mean tpu-v6e-slice?"]


def test_nodes_that_no_flavor_covers() -> None:
    existing = healthy().nodes.seen or []
    more = slice_nodes("x", "tpu-v5-lite-podslice", "2x4", 8, 4)
    found = only_finding(healthy(nodes=Fetched([*existing, *map(Node, more)])))
    assert (found.level, found.subject) == (Level.WARNING, "v5e 2x4 (pool x)")
    assert found.says == "8 nodes match no flavor, so no run can use 32 chips."
    assert "v5e-2x4: {accelerator: v5e, topology: 2x4}" in found.hint
    # Pools with the same shape are one finding.
    pools = [node for pool in "xyz" for node in slice_nodes(pool, "tpu-v5-lite-podslice", "2x4", 2, 4)]
    found = only_finding(healthy(nodes=Fetched([*existing, *map(Node, pools)])))
    assert found.subject == "v5e 2x4 (3 pools)"
    assert found.says == "6 nodes match no flavor, so no run can use 24 chips."


def test_gpus_that_are_divided_are_not_chips() -> None:
    labels = {"cloud.google.com/gke-accelerator": "nvidia-a100-80gb", "cloud.google.com/gke-gpu-partition-size": "1g"}
    allocatable = {"nvidia.com/gpu": "56", "cpu": "96"}
    mig = Node({"metadata": {"name": "mig", "labels": labels}, "spec": {}, "status": {"allocatable": allocatable}})
    found = only_finding(healthy(nodes=Fetched([*(healthy().nodes.seen or []), mig])))
    says = "1 node with GPUs that are divided or shared (1g), which a quota of whole GPUs cannot count."
    assert (found.level, found.subject, found.says) == (Level.WARNING, "GPUs", says)


def test_a_flavor_in_no_queue() -> None:
    both = healthy().flavors
    found = only_finding(replace(with_queue({"cpu": CPU}), flavors=both))
    assert found.says == "no ClusterQueue or Cohort has quota for it, so no run can use its nodes."
    # The quota of a cohort counts, too.
    cohort = upstream.cluster_queue("all", TPU)
    assert not_ok(replace(with_queue({"cpu": CPU}), flavors=both, cohorts=parsed(Cohort, cohort))) == []


@pytest.mark.parametrize(
    ("hosts", "sentence"),
    [
        (2, "quota for 16 chips, but there are 8 chips on 2 nodes now."),
        (8, "quota for 16 chips, but there are 32 chips on 8 nodes; no run can use the other 16 chips."),
    ],
)
def test_more_or_less_quota_than_chips(hosts: int, sentence: str) -> None:
    tpu_nodes = [*slice_nodes("a", "tpu-v6e-slice", "4x4", hosts, 4), *slice_nodes("c", "cpu", "", 1, 0)]
    found = only_finding(healthy(nodes=parsed(Node, *tpu_nodes)))
    assert (found.level, found.says) == (Level.WARNING, sentence)


@pytest.mark.parametrize(
    ("cores", "memory", "expected"),
    [
        ("200", "400Gi", ["quota for 200 cores, but 32 cores on 2 nodes now."]),
        ("32", "2Ti", ["quota for 2048Gi of memory, but 1024Gi of memory on 2 nodes now."]),
        ("32", "1Ti", []),
    ],
)
def test_more_quota_than_cores_or_memory(cores: str, memory: str, expected: list[str]) -> None:
    hosts = [*slice_nodes("a", "tpu-v6e-slice", "4x4", 4, 4), *slice_nodes("c", "cpu", "", 2, 0)]
    for node in hosts:
        node["status"]["allocatable"] |= {"cpu": "16", "memory": "512Gi"}
    # Kueue needs a quota for each resource of the group, so the flavor for cpu has 0 chips.
    host = {"google.com/tpu": "0", "cpu": cores, "memory": memory}
    inventory = with_queue({"v6e-4x4": {"google.com/tpu": "16", "cpu": "64", "memory": "2Ti"}, "cpu": host})
    flavors = healthy().flavors
    inventory = replace(inventory, flavors=flavors, nodes=parsed(Node, *hosts))
    found = {one.subject: one for one in examine(inventory)}
    assert [one.says for one in [found["flavor cpu"]] if one.level is Level.WARNING] == expected
    assert "chip" not in found["flavor cpu"].says


def test_taints_that_runs_do_not_tolerate() -> None:
    tpu_nodes = slice_nodes("a", "tpu-v6e-slice", "4x4", 4, 4)
    for node in tpu_nodes:
        node["spec"]["taints"].append({"key": "team", "value": "other", "effect": "NoSchedule"})
    found = [one for one in examine(healthy(nodes=parsed(Node, *tpu_nodes))) if one.subject == "flavor v6e-4x4"]
    assert found[0].level is Level.PROBLEM
    assert found[0].says == "4 of its 4 nodes have a taint that its runs do not tolerate: team=other:NoSchedule."
    tolerant = upstream.tpu_flavor(
        "v6e-4x4", "tpu-v6e-slice", "4x4", tolerations=[{"key": "team", "operator": "Exists"}]
    )
    flavors = parsed(ResourceFlavor, tolerant, upstream.flavor("cpu"))
    inventory = healthy(nodes=parsed(Node, *tpu_nodes), flavors=flavors)
    assert [one.level for one in examine(inventory) if one.subject == "flavor v6e-4x4"] == [Level.OK]


def test_nodes_that_are_down_or_drained_are_counted_in_words() -> None:
    tpu_nodes = slice_nodes("a", "tpu-v6e-slice", "4x4", 4, 4)
    tpu_nodes[0]["spec"]["unschedulable"] = True
    tpu_nodes[0]["spec"]["taints"].append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    tpu_nodes[1]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    unfit = healthy(nodes=parsed(Node, *tpu_nodes))
    sentence = [one.says for one in examine(unfit) if one.subject == "flavor v6e-4x4"]
    assert sentence == ["quota for 16 chips; 16 chips on 4 nodes (1 not ready, 1 cordoned)."]


def test_spot_nodes_count_for_the_flavor_with_more_labels() -> None:
    spot = {"cloud.google.com/gke-spot": "true"}
    labels = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "4x4"}
    taint = {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}
    flavors = [
        upstream.flavor("v6e-4x4", labels),
        upstream.flavor("v6e-4x4-spot", {**labels, **spot}, nodeTaints=[taint]),
        upstream.flavor("cpu"),
    ]
    tpu_nodes = [
        *slice_nodes("a", "tpu-v6e-slice", "4x4", 4, 4),
        *slice_nodes("s", "tpu-v6e-slice", "4x4", 8, 4, **spot),
    ]
    quota = {"v6e-4x4": {"google.com/tpu": "16"}, "v6e-4x4-spot": {"google.com/tpu": "32"}, "cpu": CPU}
    inventory = replace(with_queue(quota), nodes=parsed(Node, *tpu_nodes), flavors=parsed(ResourceFlavor, *flavors))
    # GKE does not taint spot nodes by default, so an on-demand run may be scheduled to one.
    assert not_ok(inventory) == [
        (
            "warning",
            "flavors v6e-4x4 and v6e-4x4-spot",
            "8 nodes match all of them, so runs of one flavor can use chips that are in the quota of another.",
        )
    ]
    for node in tpu_nodes[4:]:
        node["spec"]["taints"].append(taint)
    inventory = replace(inventory, nodes=parsed(Node, *tpu_nodes))
    found = {one.subject: (str(one.level), one.says) for one in examine(inventory)}
    assert found["flavor v6e-4x4-spot"] == ("ok", "quota for 32 chips; 32 chips on 8 nodes.")
    assert "flavors v6e-4x4 and v6e-4x4-spot" not in found


def test_levels_of_a_topology_that_nodes_lack() -> None:
    racks = upstream.tpu_flavor("v6e-4x4", "tpu-v6e-slice", "4x4", topologyName="racks")
    flavors = parsed(ResourceFlavor, racks, upstream.flavor("cpu"))
    missing = only_finding(healthy(flavors=flavors))
    assert (missing.level, missing.says) == (
        Level.PROBLEM,
        "its Topology racks does not exist, so Kueue keeps its queues inactive.",
    )
    levels = [{"nodeLabel": "cloud.google.com/gke-nodepool"}, {"nodeLabel": "example.com/rack"}]
    topology = upstream.named("Topology", "kueue.x-k8s.io/v1beta2", "racks", spec={"levels": levels})
    found = only_finding(healthy(flavors=flavors, topologies=parsed(Topology, topology)))
    assert found.says == (
        "4 of its 4 nodes lack the label example.com/rack of the Topology racks, so Kueue places no pods on them."
    )


def test_nodes_without_permission() -> None:
    found = [one for one in examine(healthy(nodes=forbidden("nodes"))) if one.level is not Level.OK]
    assert [(str(one.level), one.subject) for one in found] == [("warning", "explain (queues)"), ("unknown", "nodes")]
