"""Compare Kueue's objects of GKE's tutorial on multislice (parity_seeds.py), both variants, with the presets'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.charts import schemas
from tests.charts.helm import template
from tests.charts.parity_compare import ABSENT, ANYTHING, Row, faults, under
from tests.charts.parity_seeds import queues
from tests.charts.queues_chart import CHART, PRESETS, one, render, tree

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


def test_the_preset_renders_the_seeds_three_objects(helm: Path) -> None:
    rendered = by_kind(schemas.objects(template(helm, CHART, [PRESETS / "multislice-v5e.yaml"])))
    rows = [QUOTA, *under(["ResourceFlavor", "ClusterQueue", "LocalQueue"], COMMON_ROWS)]
    assert faults(queues("first"), rendered, rows) == []


def test_the_preset_with_preemption_renders_the_seeds_second_variant(helm: Path) -> None:
    rendered = by_kind(schemas.objects(template(helm, CHART, [PRESETS / "multislice-v5e-preemption.yaml"])))
    rows = [
        QUOTA,
        *under(["ResourceFlavor", "ClusterQueue", "LocalQueue"], COMMON_ROWS),
        COMMON_ROWS[1]._replace(path="PriorityClass.metadata.labels"),
        Row("PriorityClass.description", ABSENT, ANYTHING, "our own words; the table leaves it out"),
        Row("WorkloadPriorityClass", ABSENT, ANYTHING, "the name serves for a run's queue.priority, too"),
        Row("ClusterQueue.spec.queueingStrategy", ABSENT, "BestEffortFIFO", "Kueue's default, and the first variant's"),
    ]
    assert faults(queues("preemption"), rendered, rows) == []


def test_preemption_can_be_set_by_options(helm4: Path) -> None:
    """Set all options on top of the first preset, the priority too: without one Kueue could not preempt any run."""
    queue = "clusterQueues.cluster-queue.preemption"
    options = [f"{queue}.withinClusterQueue=LowerPriority", f"{queue}.reclaimWithinCohort=Any"]
    options += ["priorities.low-priority.value=100", "priorities.low-priority.pods=true"]
    rendered = template(helm4, CHART, [PRESETS / "multislice-v5e.yaml"], *(f"--set={option}" for option in options))
    expected = queues("preemption")["ClusterQueue"]["spec"]["preemption"]
    assert one(schemas.objects(rendered), "ClusterQueue", "cluster-queue")["spec"]["preemption"] == expected


@pytest.mark.parametrize("slices", [1, 2, 3])
def test_a_quota_is_slices_times_chips(helm4: Path, tmp_path: Path, slices: int) -> None:
    values = tree((PRESETS / "multislice-v5e.yaml").read_text().replace("slices: 3", f"slices: {slices}"))
    queue = one(render(helm4, values, tmp_path), "ClusterQueue", "cluster-queue")
    assert queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == str(8 * slices)
