"""The positions of queued runs, also if RBAC hides the ClusterQueue and the visibility API is read by LocalQueue."""

from __future__ import annotations

import copy

from launcher.backends.kubernetes.positions import positions
from launcher.k8s.errors import Forbidden
from launcher.k8s.kueue.workloads import Workload
from tests.unit import recorded
from tests.unit.recorded import Recorded

PENDING = "/apis/visibility.kueue.x-k8s.io/v1beta2"


def two_queues() -> Recorded:
    """Return a cluster in which slices-1 and slices-2 wait in the ClusterQueue tpu through two LocalQueues."""
    cluster = recorded.at("three-then-one-and-two", 4.5)
    other = copy.deepcopy(cluster.find("LocalQueue", "multislice"))
    other["metadata"]["name"] = "urgent"
    cluster.find("Workload", "jobset-slices-1-af79e")["spec"]["queueName"] = "urgent"
    return cluster.add(other)


def set_positions(cluster: Recorded, path: str, **places: int) -> None:
    cluster.visible[f"{PENDING}/{path}/pendingworkloads"] = {
        "items": [
            {
                "metadata": {"name": f"jobset-{name.replace('_', '-')}", "namespace": "research"},
                "positionInClusterQueue": place,
            }
            for name, place in places.items()
        ]
    }


def found(cluster: Recorded) -> dict[str, int]:
    workloads = [Workload(obj) for obj in cluster.objects if obj["kind"] == "Workload"]
    names = {workload.uid: workload.name for workload in workloads}
    cluster.requests.clear()
    result = positions(cluster, workloads, workloads)  # type: ignore[arg-type]  # it has the needed methods
    return {names[uid]: place for uid, place in result.items()}


def test_each_local_queue_is_read_if_the_cluster_queue_is_hidden() -> None:
    cluster = two_queues()
    refusal = Forbidden("No.", "", verb="get", resource="clusterqueues/pendingworkloads", group="", namespace="")
    cluster.visible[f"{PENDING}/clusterqueues/tpu/pendingworkloads"] = refusal
    set_positions(cluster, "namespaces/research/localqueues/multislice", slices_2_0b4d0=7)
    set_positions(cluster, "namespaces/research/localqueues/urgent", slices_1_af79e=4)
    assert found(cluster) == {"jobset-slices-1-af79e": 5, "jobset-slices-2-0b4d0": 8}


def test_a_cluster_queue_is_read_once() -> None:
    cluster = two_queues()
    set_positions(cluster, "clusterqueues/tpu", slices_1_af79e=0, slices_2_0b4d0=1)
    assert found(cluster) == {"jobset-slices-1-af79e": 1, "jobset-slices-2-0b4d0": 2}
    assert sum("pendingworkloads" in request for request in cluster.requests) == 1
