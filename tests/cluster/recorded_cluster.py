"""The cluster in which all recordings were made: its objects that the recordings do not contain."""

from __future__ import annotations

import threading

from tests.cluster.control_plane import ControlPlane

POOLS = ("nodepool1", "nodepool2", "nodepool3")
ACCELERATOR = "tpu-v5-lite-podslice"
FLAVORS = {"v5e-2x4": "2x4", "v5e-4x4": "4x4", "cpu": ""}  # by topology; no node has a 4x4 slice
_LOCK = threading.Lock()  # replayers can run in several threads
PRIORITIES = {"low": 100, "high": 10000}


def base_cluster(plane: ControlPlane) -> None:
    """Create the nodes, flavors and priority classes of all recordings. Existing objects are kept."""
    with _LOCK:
        if plane.api.find("/api/v1/nodes/node1") is None:
            _create(plane)


def _create(plane: ControlPlane) -> None:
    api = plane.api
    for pool in POOLS:
        plane.add_nodes(pool, ACCELERATOR, "2x4", 2, 4)
    plane.add_nodes("recorded-cpu", "cpu", "", 2, 0)
    for name, topology in FLAVORS.items():
        labels = {"gke-tpu-accelerator": ACCELERATOR, "gke-tpu-topology": topology} if topology else {}
        flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}}
        spec = {
            "nodeLabels": {f"cloud.google.com/{key}": value for key, value in labels.items()},
            "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}],
        }
        api.ensure({**flavor, "spec": spec if topology else {}})
    for name, value in PRIORITIES.items():
        api.ensure(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        )
    plane.add_node("node1", "cpu")
