"""GPUs that are divided or shared: their nvidia.com/gpu is not a number of GPUs."""

from __future__ import annotations

import re

from launcher.k8s.nodes import Node

PARTS = "GPUs that are divided or shared ({}), which a quota of whole GPUs cannot count"
_PARTITION = ("cloud.google.com/gke-gpu-partition-size", "cloud.google.com/gke-gpu-sharing-strategy")
_DIVIDED = re.compile(r"-MIG-|-SHARED$")


def division(node: Node) -> str:
    """Return how the GPUs of a node are divided (MIG) or shared, by its labels and resources; "" if they are whole."""
    product, replicas = (node.label(f"nvidia.com/gpu.{key}") for key in ("product", "replicas"))
    if _DIVIDED.search(product) or replicas not in ("", "0", "1"):
        return product or f"{replicas} per GPU"
    resources = (name for name in node.status.get("allocatable") or {} if name.startswith("nvidia.com/mig-"))
    return next(filter(None, (*map(node.label, _PARTITION), *filter(node.allocatable, resources))), "")
