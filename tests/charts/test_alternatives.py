"""slice.any in charts: an object whose pods accept the nodes of each alternative, and what charts refuse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.k8s.kueue.queues import ResourceFlavor
from launcher.k8s.kueue.workloads import mismatch
from tests.charts import schemas
from tests.charts.bad_values import GOOD, KINDS
from tests.charts.helm import HelmError, template

CHECKOUT = Path(__file__).parents[2]
CHARTS, VALUES = CHECKOUT / "charts", CHECKOUT / "values"
QUEUES = """
flavors:
  cpu: {accelerator: cpu}
  v6e-lab: {accelerator: v6e, topology: 4x4, provisioning: reservation, reservation: lab}
  v6e-other: {accelerator: v6e, topology: 4x4, provisioning: reservation, reservation: other}
  v6e-spot: {accelerator: v6e, topology: 4x4, provisioning: spot}
  v6e-queued: {accelerator: v6e, topology: 4x4, provisioning: flex-start}
  v6e: {accelerator: v6e, topology: 4x4}
clusterQueues:
  all:
    quota:
      cpu: {cpu: "8", memory: 16Gi}
      v6e-lab: {slices: 1}
      v6e-other: {slices: 1}
      v6e-spot: {slices: 1}
      v6e-queued: {slices: 1}
      v6e: {slices: 1}
teams:
  research: {clusterQueue: all}
"""
LAB = {"provisioning": "reservation", "reservation": "lab"}
SPOT, QUEUED, ON_DEMAND = {"provisioning": "spot"}, {"provisioning": "flex-start"}, {"provisioning": "on-demand"}


def hosts(helm: Path, folder: Path, kind: str, alternatives: list[dict[str, str]]) -> dict[str, Any]:
    """Return the spec of the pods with chips."""
    files = [folder / name for name in ("good.yaml", "kind.yaml", "own.yaml")]
    for file, text in zip(files, (GOOD, KINDS[kind], yaml.safe_dump({"slice": {"any": alternatives}})), strict=True):
        file.write_text(text)
    rendered = schemas.objects(template(helm, CHARTS / ("ray-cluster" if kind == "cluster" else "run"), files))
    pods = [found["spec"] for obj in rendered for _, found in schemas.pod_templates(obj)]
    [found] = [
        pod for pod in pods if any("google.com/tpu" in c["resources"].get("limits", {}) for c in pod["containers"])
    ]
    return dict(found)


@pytest.fixture(scope="module")
def flavors(helm4: Path, tmp_path_factory: pytest.TempPathFactory) -> list[ResourceFlavor]:
    file = tmp_path_factory.mktemp("queues") / "queues.yaml"
    file.write_text(QUEUES)
    rendered = schemas.objects(template(helm4, CHARTS / "queues", [file]))
    return [
        ResourceFlavor(obj) for obj in rendered if obj["kind"] == "ResourceFlavor" and "v6e" in obj["metadata"]["name"]
    ]


@pytest.mark.parametrize("kind", ["job-set", "ray-job", "cluster"])
@pytest.mark.parametrize(
    ("alternatives", "wanted"),
    [
        ([LAB, SPOT], {"v6e-lab", "v6e-spot", "v6e"}),
        ([SPOT, QUEUED], {"v6e-lab", "v6e-other", "v6e-spot", "v6e-queued", "v6e"}),
        ([ON_DEMAND, SPOT], {"v6e-lab", "v6e-other", "v6e-spot", "v6e"}),
        ([LAB, QUEUED], {"v6e-lab", "v6e-queued", "v6e"}),
    ],
)
def test_the_flavors_that_kueue_can_assign(
    helm: Path,
    tmp_path: Path,
    flavors: list[ResourceFlavor],
    kind: str,
    alternatives: list[dict[str, str]],
    wanted: set[str],
) -> None:
    """As with one provisioning, a label that a flavor does not have does not exclude it: see workloads.mismatch."""
    spec = hosts(helm, tmp_path, kind, alternatives)
    assert {flavor.name for flavor in flavors if mismatch(flavor, spec) is None} == wanted


@pytest.mark.parametrize("kind", ["job-set", "ray-job"])
def test_the_scheduler_accepts_only_nodes_of_an_alternative(helm: Path, tmp_path: Path, kind: str) -> None:
    def accepted(alternatives: list[dict[str, str]], labels: dict[str, str]) -> bool:
        """As kube-scheduler does for nodeSelector, and In and DoesNotExist of nodeAffinity."""
        spec = hosts(helm, tmp_path, kind, alternatives)
        node = {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
            "cloud.google.com/gke-tpu-topology": "4x4",
            **labels,
        }
        required = spec.get("affinity", {"nodeAffinity": {}})["nodeAffinity"]
        terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})
        return spec["nodeSelector"].items() <= node.items() and any(
            all(node.get(one["key"]) in one.get("values", [None]) for one in term.get("matchExpressions", []))
            for term in terms["nodeSelectorTerms"]
        )

    lab, other = {"cloud.google.com/reservation-name": "lab"}, {"cloud.google.com/reservation-name": "other"}
    spot = {"cloud.google.com/gke-spot": "true"}
    assert [accepted([LAB, SPOT], labels) for labels in (lab, spot, other, {})] == [True, True, False, False]
    assert [accepted([SPOT], labels) for labels in (lab, spot, {})] == [False, True, False]
    assert [accepted([ON_DEMAND, SPOT], labels) for labels in (spot, {})] == [True, True]


@pytest.mark.parametrize(
    ("alternative", "says"),
    [
        ("topology=2x4", "slice.any: alternative 2 sets topology; a Helm release can have alternatives that differ in"),
        ("after=1h", "slice.any: alternative 2 sets after; a Helm release can have"),
        ("train.steps=5", "slice.any: alternative 2 sets train; a Helm release can have"),
        ("provisioning=reservation", "alternative 2 has provisioning: reservation; reservation must name it."),
    ],
)
def test_a_release_cannot_have_alternatives_with_other_hosts(
    helm: Path, tmp_path: Path, alternative: str, says: str
) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    sets = ["--set", "slice.any[0].provisioning=spot", "--set", f"slice.any[1].{alternative}"]
    with pytest.raises(HelmError, match=re.escape(says)):
        template(helm, CHARTS / "run", [tmp_path / "good.yaml"], *sets)


def test_a_long_deadline_is_refused_if_one_alternative_is_flex_start(helm: Path, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    sets = ["--set", "slice.any[0].provisioning=flex-start", "--set", "run.deadlineSeconds=700000"]
    with pytest.raises(HelmError, match="at most 7 days"):
        template(helm, CHARTS / "run", [tmp_path / "good.yaml"], *sets)


def test_the_preset_of_googles_tutorial(helm4: Path) -> None:
    """Kueue tries the slice on demand first, then DWS, and only the quota of DWS needs a ProvisioningRequest."""
    queues = schemas.objects(template(helm4, CHARTS / "queues", [VALUES / "queues" / "dws-flex-start.yaml"]))
    found = {obj["metadata"]["name"]: ResourceFlavor(obj) for obj in queues if obj["kind"] == "ResourceFlavor"}
    [spec] = [obj["spec"] for obj in queues if obj["kind"] == "ClusterQueue"]
    [chips] = [group for group in spec["resourceGroups"] if "google.com/tpu" in group["coveredResources"]]
    assert [flavor["name"] for flavor in chips["flavors"]] == ["on-demand", "dws"]
    [check] = spec["admissionChecksStrategy"]["admissionChecks"]
    assert check["onFlavors"] == ["dws"]
    runs = schemas.objects(template(helm4, CHARTS / "run", [VALUES / "tutorials" / "dws-flex-start.yaml"]))
    [run] = runs
    assert run["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "user-queue"
    assert run["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] == "86400"
    [group] = run["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    pods = group["template"]["spec"]
    assert {name for name, flavor in found.items() if mismatch(flavor, pods) is None} == {
        "on-demand",
        "dws",
        "default-cpu",  # it has no label; it has no quota for chips
    }
