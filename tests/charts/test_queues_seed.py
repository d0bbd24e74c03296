"""Compare Kueue's objects of GKE's tutorial on multislice (../shared/seeds/003…), both variants, with the presets'."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts import schemas
from tests.charts.helm import template
from tests.charts.parity_compare import ABSENT, ANYTHING, Row, faults, under
from tests.charts.parity_seeds import text
from tests.charts.queues_chart import CHART, PRESETS, one, render, tree

# In the seed's text each file of manifests is one line, so the parser needs the keys of each map to find its end. The
# value of these fields is a map or a list, one level deeper than the field.
INSIDE = {
    "metadata": ["namespace", "name"],
    "spec": ["nodeLabels", "namespaceSelector", "queueingStrategy", "resourceGroups", "preemption", "clusterQueue"],
    "nodeLabels": ["cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"],
    "preemption": ["reclaimWithinCohort", "withinClusterQueue"],
    "resourceGroups": ["coveredResources", "flavors"],
    "flavors": ["name", "resources"],
    "resources": ["name", "nominalQuota"],
}
LISTS = {"resourceGroups", "flavors", "resources"}


def manifests() -> list[dict[str, dict[str, Any]]]:
    """Return the seed's objects of Kueue by kind: the first variant, then the one with preemption."""
    files = re.findall(r"apiVersion: kueue\.x-k8s\.io/v1beta1 kind: ResourceFlavor .*", text("003"))
    assert len(files) == 2
    return [{obj["kind"]: obj for obj in map(unfold, file.strip().split(" --- "))} for file in files]


def priority_class() -> dict[str, Any]:
    found = re.findall(r"apiVersion: scheduling\.k8s\.io/v1 kind: PriorityClass .*\"", text("003"))
    assert len(found) == 1
    return unfold(found[0])


def unfold(line: str) -> dict[str, Any]:
    """Return the object of a manifest without line breaks."""
    tokens = re.findall(r"\"[^\"]*\"|\[[^]]*\]|\S+", line)
    top = ["apiVersion", "kind", "metadata", "spec", "value", "globalDefault", "description"]
    obj, unread = parse(tokens, top)
    assert unread == [], unread
    return obj


def parse(tokens: list[str], keys: list[str]) -> tuple[dict[str, Any], list[str]]:
    obj: dict[str, Any] = {}
    while tokens and tokens[0].removesuffix(":") in keys and tokens[0].removesuffix(":") not in obj:
        key = tokens[0].removesuffix(":")
        tokens = tokens[1:]
        if key in LISTS:
            assert tokens[0] == "-"
            inside, tokens = parse(tokens[1:], INSIDE[key])
            obj[key] = [inside]
        elif key in INSIDE:
            obj[key], tokens = parse(tokens, INSIDE[key])
        else:
            obj[key] = yaml.safe_load(tokens[0])
            tokens = tokens[1:]
    return obj, tokens


COMMON_ROWS = [
    Row(
        "apiVersion",
        "kueue.x-k8s.io/v1beta1",
        "kueue.x-k8s.io/v1beta2",
        "v1beta1 is deprecated; 0.16 to 0.19 serve v1beta2",
    ),
    Row("metadata.labels", ABSENT, ANYTHING, "says which chart made it, and for whom"),
]
QUOTA = Row(
    "ClusterQueue.spec.resourceGroups[0].flavors[vlp-24].resources[google.com/tpu].nominalQuota",
    24,
    "24",
    "Kueue stores a quantity as a text",
)


def by_kind(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    assert len({obj["kind"] for obj in objects}) == len(objects)
    return {obj["kind"]: obj for obj in objects}


def test_the_seed_is_parsed() -> None:
    first, second = manifests()
    assert set(first) == set(second) == {"ResourceFlavor", "ClusterQueue", "LocalQueue"}
    assert first["ClusterQueue"]["spec"]["resourceGroups"][0]["flavors"] == [
        {"name": "vlp-24", "resources": [{"name": "google.com/tpu", "nominalQuota": 24}]}
    ]
    assert first["LocalQueue"]["metadata"] == {"namespace": "default", "name": "multislice-queue"}
    assert second["ClusterQueue"]["spec"]["preemption"] == {
        "reclaimWithinCohort": "Any",
        "withinClusterQueue": "LowerPriority",
    }
    assert priority_class()["value"] == 100


def test_the_preset_renders_the_seeds_three_objects(helm: Path) -> None:
    rendered = by_kind(schemas.objects(template(helm, CHART, [PRESETS / "multislice-v5e.yaml"])))
    rows = [QUOTA, *under(["ResourceFlavor", "ClusterQueue", "LocalQueue"], COMMON_ROWS)]
    assert faults(manifests()[0], rendered, rows) == []


def test_the_preset_with_preemption_renders_the_seeds_second_variant(helm: Path) -> None:
    rendered = by_kind(schemas.objects(template(helm, CHART, [PRESETS / "multislice-v5e-preemption.yaml"])))
    rows = [
        QUOTA,
        *under(["ResourceFlavor", "ClusterQueue", "LocalQueue"], COMMON_ROWS),
        COMMON_ROWS[1]._replace(path="PriorityClass.metadata.labels"),
        Row("PriorityClass.description", priority_class()["description"], ANYTHING, "in our own words"),
        Row("WorkloadPriorityClass", ABSENT, ANYTHING, "the name serves for a run's queue.priority, too"),
        Row("ClusterQueue.spec.queueingStrategy", ABSENT, "BestEffortFIFO", "Kueue's default, and the first variant's"),
    ]
    assert faults({**manifests()[1], "PriorityClass": priority_class()}, rendered, rows) == []


def test_preemption_can_be_set_by_options(helm4: Path) -> None:
    """Set all options on top of the first preset, the priority too: without one Kueue could not preempt any run."""
    queue = "clusterQueues.cluster-queue.preemption"
    options = [f"{queue}.withinClusterQueue=LowerPriority", f"{queue}.reclaimWithinCohort=Any"]
    options += ["priorities.low-priority.value=100", "priorities.low-priority.pods=true"]
    rendered = template(helm4, CHART, [PRESETS / "multislice-v5e.yaml"], *(f"--set={option}" for option in options))
    expected = manifests()[1]["ClusterQueue"]["spec"]["preemption"]
    assert one(schemas.objects(rendered), "ClusterQueue", "cluster-queue")["spec"]["preemption"] == expected


@pytest.mark.parametrize("slices", [1, 2, 3])
def test_a_quota_is_slices_times_chips(helm4: Path, tmp_path: Path, slices: int) -> None:
    values = tree((PRESETS / "multislice-v5e.yaml").read_text().replace("slices: 3", f"slices: {slices}"))
    queue = one(render(helm4, values, tmp_path), "ClusterQueue", "cluster-queue")
    assert queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == str(8 * slices)
