"""launcher cluster adopt: nodes of GKE, EKS and on-prem clusters as flavors and quota, without divided GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.config.values import files as values
from launcher.config.values.writer import dumps
from launcher.products.gke import adopt
from launcher.releases import values as release_values

Node = dict[str, Any]


def with_resources(labels: dict[str, str], resources: dict[str, str], taint: str = "") -> Node:
    spec = {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {}
    status = {"allocatable": {"cpu": "8", **resources}}
    return {"metadata": {"name": "n", "labels": labels}, "spec": spec, "status": status}


EKS_LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "node.kubernetes.io/instance-type": "p5.48xlarge"}
EKS = with_resources(EKS_LABELS, {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"})
CORDONED = "node.kubernetes.io/unschedulable"
EKS_CPU = with_resources({}, {"vpc.amazonaws.com/pod-eni": "9", "attachable-volumes-aws-ebs": "39"}, CORDONED)


def test_nodes_of_eks_become_a_flavor_with_a_row_for_their_label() -> None:
    groups, notes = adopt.from_nodes([EKS, EKS, EKS_CPU])
    assert notes == []
    assert (adopt.is_plain(EKS), adopt.is_plain(EKS_CPU)) == (False, True)
    assert adopt.capacity([EKS, EKS_CPU]) == {"cpu": 8, "memory": 0}
    adopted = adopt.values_of(groups, {"cpu": 8, "memory": 16})
    assert adopted.notes == []
    assert adopted.values["common"] == {
        "accelerators": {
            "h100-80gb": {
                "labelKey": "nvidia.com/gpu.product",
                "label": "NVIDIA-H100-80GB-HBM3",
                "machineTypes": {"p5.48xlarge": 8},
                "defaultMachineType": "p5.48xlarge",
            }
        }
    }
    assert adopted.values["flavors"]["h100-80gb"] == {"accelerator": "h100-80gb"}
    assert adopted.values["clusterQueues"]["all"]["quota"]["h100-80gb"] == {"slices": 2}


MIG = {"cloud.google.com/gke-accelerator": "nvidia-a100-80gb", "cloud.google.com/gke-gpu-partition-size": "1g.10gb"}


SHARED_LABELS = {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.replicas": "4"}
SHARED = with_resources(SHARED_LABELS, {"nvidia.com/gpu": "4"})


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (
            with_resources(MIG, {"nvidia.com/gpu": "56"}),
            "1 node has GPUs that are divided or shared (1g.10gb), which a quota of whole GPUs cannot count; "
            "they are left out.",
        ),
        (
            with_resources({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}, {"nvidia.com/gpu": "56"}),
            "1 node has GPUs that are divided or shared (NVIDIA-A100-SXM4-80GB-MIG-1g.10gb), which a quota of whole "
            "GPUs cannot count; they are left out.",
        ),
        (
            with_resources({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, {"nvidia.com/mig-1g.10gb": "56"}),
            "1 node has GPUs that are divided or shared (nvidia.com/mig-1g.10gb), which a quota of whole GPUs cannot "
            "count; they are left out.",
        ),
        (
            SHARED,
            "1 node has GPUs that are divided or shared (NVIDIA-L4), which a quota of whole GPUs cannot count; "
            "they are left out.",
        ),
        (
            with_resources({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, {"amd.com/gpu": "8"}),
            '1 node has the unknown accelerator "AMD_Instinct_MI300X_OAM"; add it to common.accelerators, with '
            "labelKey: amd.com/gpu.product-name.",
        ),
        (
            with_resources({}, {"amd.com/gpu": "8"}),
            "1 node has the extended resource amd.com/gpu and no label that names the accelerator; they are left out.",
        ),
        (
            with_resources(EKS_LABELS, {}),
            "1 node has the label nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3 and no GPUs that pods can request; "
            "they are left out.",
        ),
        (
            with_resources({}, {}, "node-role.kubernetes.io/control-plane"),
            "1 node has the taint node-role.kubernetes.io/control-plane:NoSchedule, which runs do not tolerate; "
            "they are left out.",
        ),
    ],
    ids=["MIG on GKE", "MIG single", "MIG mixed", "shared", "AMD", "no label", "no device plugin", "control plane"],
)
def test_nodes_that_are_left_out_are_not_cpu_either(one: Node, sentence: str) -> None:
    assert adopt.from_nodes([one]) == ({}, [sentence])
    assert not adopt.is_plain(one)


def test_machines_of_two_sizes_are_two_flavors() -> None:
    small = with_resources({**EKS_LABELS, "node.kubernetes.io/instance-type": "p5.4xlarge"}, {"nvidia.com/gpu": "1"})
    other = with_resources({**EKS_LABELS, "nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}, {"nvidia.com/gpu": "2"})
    adopted = adopt.values_of(adopt.from_nodes([EKS, small, other])[0], {"cpu": 0, "memory": 0})
    row = adopted.values["common"]["accelerators"]["h100-80gb"]
    assert row["machineTypes"] == {"p5.48xlarge": 8, "p5.4xlarge": 1}
    machines = sorted(
        flavor.get("machineType", row["defaultMachineType"]) for flavor in adopted.values["flavors"].values()
    )
    assert machines == ["p5.48xlarge", "p5.4xlarge"]
    (note,) = adopted.notes
    assert "one row of common.accelerators, h100-80gb, cannot have both; add a row." in note


def test_the_adopted_values_satisfy_the_schema(tmp_path: Path) -> None:
    adopted = adopt.values_of(adopt.from_nodes([EKS, EKS_CPU])[0], {"cpu": 8, "memory": 16})
    file = tmp_path / "values.yaml"
    file.write_text(dumps(dict(adopted.values)), encoding="utf-8")
    user = values.load([file])
    assert release_values.effective_of("queues", user).tree["flavors"]["h100-80gb"] == {"accelerator": "h100-80gb"}
