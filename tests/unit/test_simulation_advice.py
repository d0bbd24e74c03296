"""The search for changes of queues, and the changes of objects that it makes without the chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.config.plan import CheckFailed
from launcher.errors import UsageError
from launcher.simulation import from_values
from launcher.simulation.advice import Goal, advise, as_text, read_bound
from launcher.simulation.queue_changes import changed_platform
from tests.tools import tool

QUEUES = """\
flavors:
  v6e-4x4: {accelerator: v6e, topology: 4x4}
cohorts: {all: {}}
clusterQueues:
  research: {chipsAlone: true, cohort: all, quota: {v6e-4x4: {slices: 2, borrowing: 0}}}
  product: {chipsAlone: true, cohort: all, quota: {v6e-4x4: {slices: 4, borrowing: 0}}}
teams:
  research: {clusterQueue: research}
  product: {clusterQueue: product}
"""
SLICES = "clusterQueues.{}.quota.v6e-4x4.slices={}"


@pytest.fixture(autouse=True)
def helm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HELM", str(tool("helm")))


@pytest.fixture
def files(tmp_path: Path) -> tuple[list[str], Path]:
    """Queues in which research has too little: it runs eight runs of two slices, and product one."""
    (tmp_path / "queues.yaml").write_text(QUEUES)
    runs = [{"team": "research", "topology": "4x4", "slices": 2, "arrives": 0, "lasts": "1h"} for _ in range(8)]
    runs.append({"team": "product", "topology": "4x4", "slices": 2, "arrives": 0, "lasts": "1h"})
    (tmp_path / "runs.yaml").write_text(json.dumps(runs))
    return [str(tmp_path / "queues.yaml")], tmp_path / "runs.yaml"


def test_the_best_change_moves_quota_and_shows_its_cost(files: tuple[list[str], Path]) -> None:
    found = advise(
        *files, Goal.parse("wait:research"), [SLICES.format("research", "2..6"), SLICES.format("product", "1..4")]
    )
    assert found.now == pytest.approx(7 * 3600, abs=30)
    best = found.found[0]
    # Four slices run two of its eight runs at once; product keeps the two that its run needs.
    slices = {name: queue["quota"]["v6e-4x4"]["slices"] for name, queue in best.values["clusterQueues"].items()}
    assert slices["research"] in (4, 5)
    assert sum(slices.values()) <= 6
    assert best.goal == pytest.approx(3 * 3600, abs=30)
    figures = {(row.about, row.name): row for row in best.rows}
    assert figures["v6e-4x4", "quota"].after <= 96  # type: ignore[operator]
    assert figures["research", "95th wait"].difference == pytest.approx(-4 * 3600, abs=60)
    assert all(each.goal >= best.goal for each in found.found)  # type: ignore[operator]
    assert len(found.found) == 3
    assert found.tried == 20
    text = as_text(found)
    assert text.startswith("The 95th wait of research is 7 h. The best changes (tried: 20):")
    assert "# 1: 95th wait of research 3 h\nclusterQueues:\n" in text


def test_with_grow_the_total_quota_may_become_larger(files: tuple[list[str], Path]) -> None:
    bound = [SLICES.format("research", "2..8")]
    assert advise(*files, Goal.parse("wait:research"), bound).found == []
    found = advise(*files, Goal.parse("wait:research"), bound, grow=True)
    assert found.found[0].values == {"clusterQueues": {"research": {"quota": {"v6e-4x4": {"slices": 8}}}}}
    assert found.found[0].goal == pytest.approx(3600, abs=30)


def test_many_combinations_are_searched_key_by_key(files: tuple[list[str], Path]) -> None:
    bounds = [
        SLICES.format("research", "2..8"),
        SLICES.format("product", "1..8"),
        "clusterQueues.research.queueingStrategy=BestEffortFIFO,StrictFIFO",
        "clusterQueues.product.preemption.reclaimWithinCohort=Never,Any",
    ]
    found = advise(*files, Goal.parse("wait:research"), bounds)
    assert found.tried <= 150
    assert found.found[0].goal == pytest.approx(3 * 3600, abs=30)


def test_if_nothing_helps_there_is_no_advice(files: tuple[list[str], Path]) -> None:
    found = advise(*files, Goal.parse("lost"), ["clusterQueues.research.queueingStrategy=StrictFIFO"])
    assert found.found == []
    expected = "No change improves the work lost to restarts, which is 0.0 chip-hours (tried: 1)."
    assert as_text(found) == expected


@pytest.mark.parametrize(
    ("changes", "sets"),
    [
        ({"clusterQueues.research.quota.v6e-4x4.slices": 5}, ["clusterQueues.research.quota.v6e-4x4.slices=5"]),
        ({"clusterQueues.research.quota.v6e-4x4.lending": 1}, ["clusterQueues.research.quota.v6e-4x4.lending=1"]),
        ({"clusterQueues.product.quota.v6e-4x4.borrowing": 3}, ["clusterQueues.product.quota.v6e-4x4.borrowing=3"]),
        (
            {"clusterQueues.product.preemption.reclaimWithinCohort": "Any"},
            ["clusterQueues.product.preemption.reclaimWithinCohort=Any"],
        ),
        (
            {"clusterQueues.product.queueingStrategy": "StrictFIFO"},
            ["clusterQueues.product.queueingStrategy=StrictFIFO"],
        ),
        (
            {"clusterQueues.product.flavorFungibility.whenCanBorrow": "TryNextFlavor"},
            ["clusterQueues.product.flavorFungibility.whenCanBorrow=TryNextFlavor"],
        ),
    ],
)
def test_a_changed_object_is_that_of_the_chart(
    files: tuple[list[str], Path], changes: dict[str, Any], sets: list[str]
) -> None:
    before = from_values.platform(files[0])
    changed = changed_platform(before, {tuple(key.split(".")): value for key, value in changes.items()})
    assert changed is not None
    wanted = from_values.platform(files[0], sets)
    assert [queue.spec for queue in changed.cluster_queues] == [queue.spec for queue in wanted.cluster_queues]
    assert [queue.spec for queue in before.cluster_queues] != [queue.spec for queue in wanted.cluster_queues]


def test_other_keys_are_rendered(files: tuple[list[str], Path]) -> None:
    before = from_values.platform(files[0])
    for key in (
        "clusterQueues.research.cohort",
        "clusterQueues.research.quota.v6e-4x4.order",
        "cohorts.all.fairWeight",
    ):
        assert changed_platform(before, {tuple(key.split(".")): 1}) is None


def test_bounds_and_goals_are_checked(files: tuple[list[str], Path]) -> None:
    assert read_bound("a.b=2..4").values == (2, 3, 4)
    assert read_bound("a.b=x,z").values == ("x", "z")
    for text, sentence in (
        ("a.b=4..2", "is not a range of whole numbers"),
        ("a.b=0..99", "it has 100 values, and at most 64 can be tried"),
        ("a.b", "the key"),
    ):
        with pytest.raises(UsageError) as caught:
            read_bound(text)
        assert sentence in caught.value.message
    for text in ("wait", "speed", "lost:research"):
        with pytest.raises(UsageError, match=r"this is not a goal; use wait:TEAM, utilisation\[:FLAVOR\] or lost"):
            Goal.parse(text)
    with pytest.raises(UsageError, match=r'there is no team "reserch"; did you mean research\?'):
        advise(*files, Goal.parse("wait:reserch"), [SLICES.format("research", "2..3")])
    with pytest.raises(CheckFailed, match=r"unknown key clusterQueues.research.quta; did you mean"):
        advise(*files, Goal.parse("lost"), ["clusterQueues.research.quta=1"])
