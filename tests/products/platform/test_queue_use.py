"""Quota, use and lent quota of the queues, compared with what the real Kueue reported (tests/upstream/recordings)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from launcher.cli.output import plain
from launcher.k8s.errors import Forbidden
from launcher.k8s.kueue.queues import ClusterQueue, Cohort
from launcher.products.platform import queues
from tests.unit import recorded

CPU, TPU = "cpu", "google.com/tpu"


@pytest.mark.parametrize("recording", ["borrowing-then-reclaimed", "preempted-by-priority", "quota-in-use-by-others"])
def test_borrowed_quota_is_what_kueue_reports(recording: str) -> None:
    compared = 0
    for second in range(2, 40, 3):
        found = [each for each in recorded.at(recording, second).objects if each["kind"] == "ClusterQueue"]
        reported = {
            (queue["metadata"]["name"], flavor["name"], entry["name"]): (entry["total"], entry["borrowed"])
            for queue in found
            for flavor in queue.get("status", {}).get("flavorsReservation") or ()
            for entry in flavor["resources"]
        }
        for queue in queues.use([ClusterQueue(each) for each in found]):
            for row in queue.quotas:
                key = (queue.name, row.flavor, row.resource)
                if key in reported:
                    assert (str(row.used), str(row.borrowed)) == reported[key]
                    compared += 1
    assert compared > 10


def cluster_queue(name: str, used: dict[tuple[str, str], int], quota: dict[tuple[str, str], Any], **spec: Any) -> Any:
    flavors = list(dict.fromkeys(flavor for flavor, _ in quota))
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "resourceGroups": [
                {
                    "coveredResources": list(dict.fromkeys(resource for _, resource in quota)),
                    "flavors": [
                        {
                            "name": flavor,
                            "resources": [
                                {"name": resource, **(entry if isinstance(entry, dict) else {"nominalQuota": entry})}
                                for (of, resource), entry in quota.items()
                                if of == flavor
                            ],
                        }
                        for flavor in flavors
                    ],
                }
            ],
            **spec,
        },
        "status": {
            "pendingWorkloads": 2,
            "admittedWorkloads": 1,
            "flavorsReservation": [
                {"name": flavor, "resources": [{"name": resource, "total": str(amount)}]}
                for (flavor, resource), amount in used.items()
            ],
        },
    }


def rows(found: list[queues.QueueUse]) -> dict[str, tuple[int, ...]]:
    return {
        queue.name: tuple(int(amount) for amount in (row.nominal, row.used, row.borrowed, row.lent, row.free))
        for queue in found
        for row in queue.quotas
    }


def test_lent_quota_is_what_a_queue_cannot_use_now() -> None:
    what = ("v6e", TPU)
    some = [
        cluster_queue("a", {what: 4}, {what: 16}, cohortName="org"),
        cluster_queue("b", {what: 20}, {what: 16}, cohortName="org"),
        cluster_queue("c", {}, {what: {"nominalQuota": 16, "lendingLimit": 4}}, cohortName="org"),
        cluster_queue("alone", {what: 8}, {what: 16}),
    ]
    # Nominal, used, borrowed, lent, free. Enough is left in the cohort that no lender misses its quota.
    assert rows(queues.use(list(map(ClusterQueue, some)))) == {
        "a": (16, 4, 0, 0, 12),
        "b": (16, 20, 4, 0, 12),
        "c": (16, 0, 0, 0, 24),
        "alone": (16, 8, 0, 0, 8),
    }
    some[1] = cluster_queue("b", {what: 30}, {what: 16}, cohortName="org")
    assert rows(queues.use(list(map(ClusterQueue, some)))) == {
        "a": (16, 4, 0, 10, 2),
        "b": (16, 30, 14, 0, 2),
        "c": (16, 0, 0, 2, 14),
        "alone": (16, 8, 0, 0, 8),
    }
    cohort = {"metadata": {"name": "org"}, "spec": cluster_queue("", {}, {what: 100})["spec"]}
    assert rows(queues.use(list(map(ClusterQueue, some)), [Cohort(cohort)]))["a"] == (16, 4, 0, 0, 102)


def test_only_the_chips_of_a_flavor_with_chips_are_shown() -> None:
    quota = {("v6e", TPU): 16, ("v6e", CPU): 96, ("host", CPU): 8}
    [queue] = queues.use([ClusterQueue(cluster_queue("a", {}, quota))])
    assert [
        (row.flavor, row.resource) for row in queues.shown(queue.quotas, lambda row: (row.flavor, row.resource))
    ] == [
        ("v6e", TPU),
        ("host", CPU),
    ]
    assert len(plain(queue)["quotas"]) == 3


def test_fractions_and_memory_are_numbers_in_json() -> None:
    quota = {("host", CPU): "1500m", ("host", "memory"): "2Gi"}
    [queue] = queues.use([ClusterQueue(cluster_queue("a", {("host", CPU): 2}, quota))])
    assert [(each["nominal"], each["borrowed"]) for each in plain(queue)["quotas"]] == [(1.5, 0.5), (2 << 30, 0)]
    assert queue.quotas[0].nominal == Decimal("1.5")


def test_a_queue_that_admits_nothing_says_why() -> None:
    stopped = cluster_queue("a", {}, {("v6e", TPU): 16}, stopPolicy="HoldAndDrain")
    broken = cluster_queue("b", {}, {("v6e", TPU): 16})
    broken["status"]["conditions"] = [{"type": "Active", "status": "False", "message": "Flavor v6e does not exist"}]
    assert [each.inactive for each in queues.use([ClusterQueue(stopped), ClusterQueue(broken)])] == [
        "stopped (HoldAndDrain)",
        "Flavor v6e does not exist",
    ]


def test_the_queues_of_the_namespace_and_of_all() -> None:
    cluster: Any = recorded.at("borrowing-then-reclaimed", 15)
    everything = queues.read(cluster, everywhere=True)
    assert everything.cluster_queues is not None
    assert [queue.name for queue in everything.cluster_queues] == ["research", "search"]
    assert [(each.namespace, dict(each.used), each.admitted, each.pending) for each in everything.local_queues] == [
        ("research", {}, 0, 1),
        ("search", {("v5e-2x4", TPU): Decimal(16)}, 1, 0),
    ]
    cluster.hidden.add(("clusterqueues", ""))
    hidden = queues.read(cluster, everywhere=True)
    assert (hidden.cluster_queues, hidden.local_queues) == (None, everything.local_queues)
    assert plain(hidden.as_json())["cluster_queues"] is None
    cluster.hidden.add(("localqueues", ""))
    with pytest.raises(Forbidden):
        queues.read(cluster, everywhere=True)
