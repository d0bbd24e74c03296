"""Kueue's order, quota and flavors, compared with the messages of Kueue 0.19.2 in the recordings and with its rules."""

from __future__ import annotations

import copy
import re
import time
from decimal import Decimal
from typing import Any

import pytest

from launcher.k8s.kueue import workloads as kueue
from launcher.k8s.kueue.flavor_fit import flavor_fits
from launcher.k8s.kueue.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from launcher.k8s.kueue.quota import Fit, Quotas
from launcher.k8s.kueue.workloads import Workload
from tests.unit import recorded

TPU = "google.com/tpu"
Object = dict[str, Any]


# --- the requests of a Workload, and whether they fit -------------------------------------------------------------


@pytest.mark.parametrize(
    ("recording", "seconds", "workload", "fit", "pattern"),
    [
        ("quota-in-use-by-others", 8, "jobset-waiting-2-ba966", Fit.WAITS, r"(\d+) more needed"),
        ("preempted-by-priority", 11, "jobset-low-3-23507", Fit.WAITS, r"(\d+) more needed"),
        ("borrowing-then-reclaimed", 15, "jobset-borrows-3-c546e", Fit.WAITS, r"(\d+) more needed"),
        ("larger-than-quota", 4, "jobset-slices-4-29d90", Fit.TOO_LARGE, r"maximum capacity \((\d+)\)"),
        ("selector-matches-no-flavor", 4, "jobset-wrong-topology-90e38", Fit.NO_FLAVOR, ""),
        ("head-not-covered-by-quota", 4, "rayjob-head-uncovered-2f6f0", Fit.NOT_COVERED, ""),
    ],
)
def test_kueues_message_has_the_same_amounts(
    recording: str, seconds: float, workload: str, fit: Fit, pattern: str
) -> None:
    cluster = recorded.at(recording, seconds)
    found = cluster.find("Workload", workload)
    flavors = {flavor.name: flavor for flavor in map(ResourceFlavor, recorded.flavors())}
    queue = next(
        LocalQueue(item).cluster_queue
        for item in cluster.objects
        if item["kind"] == "LocalQueue" and item["metadata"]["namespace"] == found["metadata"]["namespace"]
    )
    quotas = Quotas([ClusterQueue(item) for item in cluster.objects if item["kind"] == "ClusterQueue"])
    worst = flavor_fits(Workload(found).pod_sets, queue, quotas, flavors)[0]
    assert worst.fit is fit
    reserved = Workload(found).reserved
    assert reserved
    if pattern:
        number = re.search(pattern, reserved.message)
        assert number is not None
        amount = worst.capacity if fit is Fit.TOO_LARGE else worst.need - worst.free
        assert amount == Decimal(number[1])


def test_what_kueue_counts_follows_from_the_templates_too() -> None:
    """Kueue writes status.resourceRequests only while a Workload waits, so the launcher also computes the requests."""
    workload = recorded.at("head-not-covered-by-quota", 4).find("Workload", "rayjob-head-uncovered-2f6f0")
    requests = {item.name: item.asks for item in Workload(workload).pod_sets}
    assert requests["tpu"] == {"cpu": 16, TPU: 8, "memory": 32 * 1024**3}
    del workload["status"]["resourceRequests"]
    assert {item.name: item.asks for item in Workload(workload).pod_sets} == requests


def test_init_containers_sidecars_overhead_and_limits() -> None:
    spec = {
        "initContainers": [
            {"name": "fetch", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}},
            {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        ],
        "containers": [
            {"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {TPU: "4"}}},
            {"name": "b", "resources": {"requests": {"memory": "2Gi"}}},
        ],
        "overhead": {"memory": "128Mi"},
    }
    # cpu: the init container's 4 is more than 1 + 0.5; memory: 2 Gi is more than 1 Gi. The overhead is added.
    assert kueue.pod_asks(spec) == {"cpu": Decimal(4), "memory": 2 * 1024**3 + 128 * 1024**2, TPU: Decimal(4)}


def test_pods_that_have_ended_give_their_share_back() -> None:
    cluster = recorded.at("borrowing-then-reclaimed", 27.5)
    assert Workload(cluster.find("Workload", "jobset-owner-2-fffd6")).holds == {("v5e-2x4", TPU): Decimal(8)}


# --- flavors ------------------------------------------------------------------------------------------------------

TOPOLOGY = "cloud.google.com/gke-tpu-topology"


def flavor(
    labels: dict[str, str], taints: list[Object] | None = None, tolerations: list[Object] | None = None
) -> ResourceFlavor:
    spec = {"nodeLabels": labels, "nodeTaints": taints or [], "tolerations": tolerations or []}
    return ResourceFlavor({"metadata": {"name": "f"}, "spec": spec})


def affinity(*terms: list[Object]) -> Object:
    chosen = [{"matchExpressions": term} for term in terms]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": chosen}}}
    }


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {TOPOLOGY: "2x4"}}, True),
        ({"nodeSelector": {TOPOLOGY: "4x4"}}, False),
        ({"nodeSelector": {"other": "x"}}, True),  # the flavor does not define this label
        (affinity([{"key": TOPOLOGY, "operator": "In", "values": ["2x4", "4x4"]}]), True),
        (affinity([{"key": TOPOLOGY, "operator": "NotIn", "values": ["2x4"]}]), False),
        (
            affinity(
                [{"key": TOPOLOGY, "operator": "In", "values": ["8x8"]}], [{"key": "other", "operator": "Exists"}]
            ),
            True,
        ),
        (affinity([{"key": TOPOLOGY, "operator": "DoesNotExist"}]), False),
    ],
)
def test_labels_of_a_flavor(spec: Object, fits: bool) -> None:
    assert (kueue.mismatch(flavor({TOPOLOGY: "2x4"}), spec) is None) is fits


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (None, False),
        ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "b"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taints_of_a_flavor(toleration: Object | None, fits: bool) -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    spec = {"tolerations": [toleration]} if toleration else {}
    missed = kueue.mismatch(flavor({}, [taint]), spec)
    assert (missed is None) is fits
    assert missed is None or missed.taint == "team=a:NoSchedule"
    assert kueue.mismatch(flavor({}, [taint], [{"operator": "Exists"}]), {}) is None


# --- quota --------------------------------------------------------------------------------------------------------


def queue(name: str, nominal: int, cohort: str = "", used: int = 0, **limits: int) -> ClusterQueue:
    entry = {"name": TPU, "nominalQuota": str(nominal), **{key: str(value) for key, value in limits.items()}}
    return ClusterQueue(
        {
            "metadata": {"name": name},
            "spec": {
                **({"cohortName": cohort} if cohort else {}),
                "resourceGroups": [{"coveredResources": [TPU], "flavors": [{"name": "f", "resources": [entry]}]}],
            },
            "status": {"flavorsReservation": [{"name": "f", "resources": [{"name": TPU, "total": str(used)}]}]},
        }
    )


def cohort(name: str, parent: str = "", nominal: int = 0) -> Cohort:
    group = {
        "coveredResources": [TPU],
        "flavors": [{"name": "f", "resources": [{"name": TPU, "nominalQuota": nominal}]}],
    }
    spec = {"parentName": parent, "resourceGroups": [group] if nominal else []}
    return Cohort({"metadata": {"name": name}, "spec": spec})


F = ("f", TPU)


@pytest.mark.parametrize(
    ("queues", "cohorts", "free", "capacity"),
    [
        # alone
        ([queue("a", 16, used=4)], [], 12, 16),
        ([queue("a", 16, used=20)], [], 0, 16),  # the quota was reduced later
        # a cohort without a Cohort object
        ([queue("a", 8, "org"), queue("b", 16, "org", used=4)], [], 20, 24),
        ([queue("a", 8, "org", used=8), queue("b", 16, "org", used=16)], [], 0, 24),
        # limits
        ([queue("a", 8, "org", borrowingLimit=4), queue("b", 16, "org")], [], 12, 12),
        ([queue("a", 8, "org", used=10, borrowingLimit=4), queue("b", 16, "org")], [], 2, 12),
        ([queue("a", 8, "org"), queue("b", 16, "org", lendingLimit=4)], [], 12, 12),
        ([queue("a", 8, "org"), queue("b", 16, "org", used=14, lendingLimit=4)], [], 10, 12),
        ([queue("a", 8, "org", lendingLimit=2), queue("b", 16, "org", used=18)], [], 6, 24),
        # a cohort with quota, and a tree of them
        ([queue("a", 0, "org")], [cohort("org", nominal=32)], 32, 32),
        (
            [queue("a", 8, "left"), queue("b", 8, "right", used=4)],
            [cohort("left", "top"), cohort("right", "top")],
            12,
            16,
        ),
        ([queue("a", 8, "left"), queue("b", 8, "right")], [cohort("left"), cohort("right")], 8, 8),
    ],
)
def test_free_and_capacity(queues: list[ClusterQueue], cohorts: list[Cohort], free: int, capacity: int) -> None:
    """The rules are those of Kueue 0.19 (pkg/cache/scheduler/resource_node.go: available, potentialAvailable)."""
    quotas = Quotas(queues, cohorts)
    assert (int(quotas.available("a", F)), int(quotas.potential_available("a", F))) == (free, capacity)


def test_a_circle_of_cohorts_ends() -> None:
    quotas = Quotas([queue("a", 8, "x")], [cohort("x", "y"), cohort("y", "x")])
    assert quotas.potential_available("a", F) == 8


def test_the_family_shares_the_topmost_cohort() -> None:
    quotas = Quotas(
        [queue("a", 8, "left"), queue("b", 8, "right"), queue("c", 8)], [cohort("left", "top"), cohort("right", "top")]
    )
    assert (quotas.root_cohort_queues("a"), quotas.root_cohort_queues("c")) == (["a", "b"], ["c"])
    assert quotas.cohort("a") == "left"


def test_pod_sets_share_what_is_free() -> None:
    """Kueue counts earlier pod sets as used, such as the head if its workers use the same cpu flavor."""
    sets = [kueue.PodSet(name, 1, {}, {TPU: Decimal(6)}) for name in ("head", "workers")]
    found = flavor_fits(sets, "a", Quotas([queue("a", 10)]), {"f": flavor({})})
    assert [(item.pod_set.name, item.fit) for item in found] == [("workers", Fit.TOO_LARGE), ("head", Fit.NOW)]


# --- the order ----------------------------------------------------------------------------------------------------


def workload(name: str, created: str, priority: int = 0, conditions: list[Object] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "research", "uid": name, "creationTimestamp": created},
        "spec": {"priority": priority, "queueName": "q", **spec},
        "status": {"conditions": conditions or []},
    }


LOCAL = LocalQueue({"metadata": {"name": "q", "namespace": "research"}, "spec": {"clusterQueue": "a"}})


def order(*workloads: Object) -> list[str]:
    return [each.uid for each in kueue.queued_workloads(map(Workload, workloads), [LOCAL])["a"]]


def evicted(reason: str, at: str) -> list[Object]:
    return [{"type": "Evicted", "status": "True", "reason": reason, "lastTransitionTime": at}]


def test_priority_then_age_then_uid() -> None:
    early, late = "2026-11-21T06:00:00Z", "2026-11-21T06:00:09Z"
    assert order(workload("b", early), workload("a", early), workload("c", late, 5), workload("d", late)) == list(
        "cabd"
    )


def test_an_eviction_keeps_the_place_except_for_two_reasons() -> None:
    early, middle, late = (f"2026-11-21T06:00:0{second}Z" for second in (0, 5, 9))
    assert order(workload("a", early, conditions=evicted("Preempted", late)), workload("b", middle)) == ["a", "b"]
    assert order(workload("a", early, conditions=evicted("PodsReadyTimeout", late)), workload("b", middle)) == [
        "b",
        "a",
    ]
    assert order(workload("a", early, conditions=evicted("AdmissionCheck", late)), workload("b", middle)) == ["b", "a"]


def test_a_boost_counts() -> None:
    boosted = workload("b", "2026-11-21T06:00:09Z")
    boosted["metadata"]["annotations"] = {"kueue.x-k8s.io/priority-boost": "3"}
    assert order(workload("a", "2026-11-21T06:00:00Z", 2), boosted) == ["b", "a"]


@pytest.mark.parametrize(
    "changes",
    [
        {"conditions": [{"type": "QuotaReserved", "status": "True"}]},
        {"conditions": [{"type": "Finished", "status": "True"}]},
        {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "OnHold"}]},
        {"conditions": [{"type": "Requeued", "status": "False", "reason": "PodsReadyTimeout"}]},
        {"active": False},
        {"queueName": "nosuch"},
    ],
)
def test_workloads_that_are_not_queued(changes: dict[str, Any]) -> None:
    early = "2026-11-21T06:00:00Z"
    assert order(workload("a", early, **changes), workload("b", early)) == ["b"]


def test_a_thousand_workloads_are_ordered_fast() -> None:
    one = recorded.at("quota-in-use-by-others", 8).find("Workload", "jobset-waiting-2-ba966")
    many = []
    for number in range(1000):
        other = copy.deepcopy(one)
        other["metadata"].update(uid=f"u{number:04}", name=f"w{number}")
        many.append(Workload(other))
    local = LocalQueue({"metadata": {"name": "multislice", "namespace": "research"}, "spec": {"clusterQueue": "tpu"}})
    began = time.process_time()
    (waiting,) = kueue.queued_workloads(many, [local]).values()
    assert time.process_time() - began < 0.4
    assert [each.uid for each in waiting] == [f"u{number:04}" for number in range(1000)]


def test_several_pod_sets_need_what_all_of_them_need() -> None:
    """For Kueue's topologies charts/run renders a worker group for each slice: here six slices, and quota for three."""
    sets = [kueue.PodSet(f"slice-{index}", 2, {}, {TPU: Decimal(8)}) for index in range(6)]
    found = flavor_fits(sets, "a", Quotas([queue("a", 24)]), {"f": flavor({})})
    assert (found[0].fit, int(found[0].need), int(found[0].capacity)) == (Fit.TOO_LARGE, 48, 24)
