"""GPUs off GKE: flavors and pods have the node label and the resource of the accelerator's row."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from launcher.config import accelerators
from launcher.config.values import files as values
from launcher.products.planner.simulation.platform import from_objects
from tests.charts import schemas
from tests.charts.helm import template
from tests.charts.queues_chart import CHART, one, quotas

RUN_CHART = CHART.parent / "run"


class Cluster(NamedTuple):
    """`common` has the row; the pods then have these labels, this resource, and the platform of JAX."""

    common: str
    accelerator: str
    labels: dict[str, str]
    resource: str
    platform: str


EKS = Cluster(
    """
    h100-80gb:
      labelKey: node.kubernetes.io/instance-type
      label: p5.48xlarge
      machineTypes: {p5.48xlarge: 8}
      defaultMachineType: p5.48xlarge
    """,
    "h100-80gb",
    {"node.kubernetes.io/instance-type": "p5.48xlarge"},
    "nvidia.com/gpu",
    "cuda,cpu",
)
ON_PREM = Cluster(
    """
    a100-80gb:
      labelKey: nvidia.com/gpu.product
      label: NVIDIA-A100-SXM4-80GB
      machineTypes: {dgx: 8}
      defaultMachineType: dgx
    """,
    "a100-80gb",
    {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
    "nvidia.com/gpu",
    "cuda,cpu",
)
AMD = Cluster(
    """
    mi300x:
      kind: gpu
      labelKey: amd.com/gpu.product-name
      label: AMD_Instinct_MI300X_OAM
      resource: amd.com/gpu
      rayAcceleratorType: AMD-Instinct-MI300X-OAM
      dimensions: 0
      machineTypes: {mi300x-8: 8}
      defaultMachineType: mi300x-8
      hbmGiB: 192
      peakTflops: 1307
    """,
    "mi300x",
    {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"},
    "amd.com/gpu",
    "rocm,cpu",
)
WITHOUT_LABEL = Cluster("h200: {label: ''}", "h200", {}, "nvidia.com/gpu", "cuda,cpu")


@pytest.mark.parametrize("case", [EKS, ON_PREM, AMD, WITHOUT_LABEL], ids=["EKS", "on-prem", "AMD", "no label"])
def test_flavors_and_pods_use_the_label_and_the_resource_of_the_row(helm4: Path, tmp_path: Path, case: Cluster) -> None:
    common = {"common": {"accelerators": yaml.safe_load(case.common)}}
    queues: dict[str, Any] = {
        "flavors": {"gpus": {"accelerator": case.accelerator, "hosts": 2}, "cpu": {"accelerator": "cpu"}},
        "clusterQueues": {"all": {"quota": {"gpus": {"slices": 3}, "cpu": {"cpu": "8", "memory": "8Gi"}}}},
    }
    run: dict[str, Any] = {
        "run": {"kind": "job-set", "name": "a-run"},
        "slice": {"accelerator": case.accelerator, "hosts": 2},
        "image": {"repository": "example.com/image", "tag": "1"},
        "storage": {"kind": "pvc", "claim": "data"},
        "data": {"corpus": "python"},
    }
    for name, tree in (("queues", queues), ("run", run)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**common, **tree}))

    objects = schemas.objects(template(helm4, CHART, [tmp_path / "queues.yaml"]))
    assert one(objects, "ResourceFlavor", "gpus")["spec"].get("nodeLabels", {}) == case.labels
    (chips,) = [
        quota for flavor, quota in quotas(one(objects, "ClusterQueue", "all")["spec"]).items() if flavor == "gpus"
    ]
    assert chips == {case.resource: {"nominalQuota": "48"}}

    (job_set,) = schemas.objects(template(helm4, RUN_CHART, [tmp_path / "run.yaml"]))
    for obj in (*objects, job_set):
        assert schemas.validate(obj) == []
    (job,) = job_set["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    assert pod.get("nodeSelector", {}) == case.labels
    (host,) = pod["containers"]
    assert host["resources"]["limits"] == {case.resource: "8"}
    assert {"key": case.resource, "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    assert {"name": "JAX_PLATFORMS", "value": case.platform} in host["env"]

    # The launcher finds the same.
    effective = values.with_defaults(values.load([tmp_path / "run.yaml"]), values.chart_defaults("run")).tree
    found = accelerators.resolve(effective["slice"], effective["common"]["accelerators"])
    assert (found.chips, found.resource) == (16, case.resource)
    if case.labels:
        flavor = from_objects(objects, effective["common"]["accelerators"], {}).flavors["gpus"]
        assert (flavor.accelerator, flavor.resource) == (case.accelerator, case.resource)
