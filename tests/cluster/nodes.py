"""Simulated nodes like those of GKE: TPU slices and cpu nodes."""

from __future__ import annotations

from typing import Any

CONDITIONS = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}


def nodes(
    pool: str, accelerator: str, topology: str, hosts: int, chips: int, labels: dict[str, str], port: int, now: str
) -> list[dict[str, Any]]:
    """Nodes `<pool>-0` … with `chips` of google.com/tpu each. Nodes of "cpu" have no chips, slice labels or taint.

    accelerator: "cpu", or GKE's label (tpu-v6e-slice); port: the port of the log server; now: RFC 3339.
    """
    tpu = accelerator != "cpu"
    made = {
        "cloud.google.com/gke-nodepool": pool,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **(
            {"cloud.google.com/gke-tpu-accelerator": accelerator, "cloud.google.com/gke-tpu-topology": topology}
            if tpu
            else {}
        ),
        **labels,
    }
    capacity = {"cpu": "180", "memory": "700Gi", "pods": "110", "ephemeral-storage": "500Gi"}
    if tpu:
        capacity["google.com/tpu"] = str(chips)
    conditions = [
        {"type": kind, "status": status, "reason": "Simulated", "message": "simulated", "lastTransitionTime": now}
        for kind, status in CONDITIONS.items()
    ]
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{pool}-{number}",
                "labels": {**made, "kubernetes.io/hostname": f"{pool}-{number}"},
                "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            },
            "spec": {"taints": [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}] if tpu else []},
            # A kubelet registers with its status. No test needs updates of it.
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": conditions,
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
                "nodeInfo": _INFO,
            },
        }
        for number in range(hosts)
    ]


_INFO = {
    **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "kubeProxyVersion"), ""),
    "osImage": "simulated",
    "containerRuntimeVersion": "simulated",
    "kubeletVersion": "v1.36.2",
    "operatingSystem": "linux",
    "architecture": "amd64",
}
