"""The search for changes of queues, and the changes of objects that it makes without the chart."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from launcher.config.plan import CheckFailed
from launcher.config.values.tree import Origin, Values, set_value
from launcher.errors import UsageError
from launcher.paths import charts_dir
from launcher.products.planner.cli.simulation_text import advice_text
from launcher.products.planner.simulation import from_values, queue_fields
from launcher.products.planner.simulation.advice import advise
from launcher.products.planner.simulation.advice_search import read_bound
from launcher.products.planner.simulation.goals import Goal
from launcher.products.planner.simulation.platform import Platform
from launcher.products.planner.simulation.queue_changes import KEYS, Choice, QueueChanges, differences
from launcher.releases import values as release_values
from tests.tools import tool

QUEUES = """\
flavors:
  v6e-4x4: {accelerator: v6e, topology: 4x4}
cohorts: {all: {}, other: {}}
clusterQueues:
  alone: {chipsAlone: true, quota: {v6e-4x4: {slices: 1}}}
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
    # The quota costs the same per chip, although the runs end earlier with the change.
    cost, quota = figures["", "cost of all quota"], figures["v6e-4x4", "quota"]
    assert cost.after / quota.after == pytest.approx(cost.before / quota.before)  # type: ignore[operator]
    assert figures["research", "95th wait"].difference == pytest.approx(-4 * 3600, abs=60)
    assert all(each.goal >= best.goal for each in found.found)  # type: ignore[operator]
    assert len(found.found) == 3
    assert found.tried == 20
    text = advice_text(found)
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
    assert advice_text(found) == expected
    found = advise(*files, Goal.parse("lost"), ["clusterQueues.research.fairWeight=1,2"])
    assert advice_text(found).endswith("but it is assumed to be off in Kueue; use --fair-sharing.")


# Nested cohorts, a queue without a cohort, a cohort with quota of its own, hosts whose cpu follows from their slices, a
# flavor whose object's name has a hash, and amounts that the chart writes in another form (1000 is 1k).
MANY = """\
flavors:
  v6e-4x4: {accelerator: v6e, topology: 4x4}
  v5e-2x4: {accelerator: v5e, topology: 2x4, provisioning: spot, versioned: true}
  h100: {accelerator: h100-80gb, hosts: 2}
  whole: {accelerator: v6e, topology: 4x4, hostCpu: "100", hostMemory: 500Gi, nodeLabels: {pool: whole}}
  cpu: {accelerator: cpu}
  heads: {accelerator: cpu, nodeLabels: {pool: heads}}
cohorts:
  org: {}
  tpu: {parent: org, quota: {v5e-2x4: {slices: 2}}}
  lab: {parent: org, fairWeight: 3}
clusterQueues:
  research:
    cohort: tpu
    fairWeight: 2
    quota:
      v6e-4x4: {slices: 4, borrowing: 4, lending: 2, order: 1}
      v5e-2x4: {slices: 0, order: 2}
      cpu: {cpu: "81", memory: 152Gi, cpuLending: "40"}
    preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any, borrowWithinCohort: LowerPriority,
      maxPriorityThreshold: low}
    flavorFungibility: {whenCanBorrow: TryNextFlavor}
  product:
    cohort: lab
    quota: {h100: {slices: 5}, v6e-4x4: {slices: 4}, cpu: {cpu: "63", memory: 118Gi}}
    preemption: {reclaimWithinCohort: LowerPriority}
  whole:
    cohort: lab
    quota: {whole: {slices: 2}, heads: {cpu: "9", memory: 20Gi}}
  alone:
    chipsAlone: true
    quota: {v6e-4x4: {slices: 2}}
teams:
  research: {clusterQueue: research}
  alone: {clusterQueue: alone}
"""

CHANGES: list[dict[str, Any]] = [
    {"clusterQueues.research.quota.v6e-4x4.slices": 125},
    {"clusterQueues.research.quota.v6e-4x4.lending": 1},
    {"clusterQueues.research.quota.v6e-4x4.borrowing": 0},
    {"clusterQueues.research.quota.v6e-4x4.order": 5},
    {"clusterQueues.research.quota.v5e-2x4.slices": 3},
    {"clusterQueues.research.quota.cpu.cpu": "1000m", "clusterQueues.research.quota.cpu.cpuLending": "500m"},
    {"clusterQueues.research.quota.cpu.memory": "2048Mi"},
    {"clusterQueues.product.quota.h100.slices": 9},
    {"clusterQueues.product.quota.v5e-2x4.slices": 2},
    {"clusterQueues.whole.quota.whole.slices": 3, "clusterQueues.whole.quota.whole.borrowing": 1},
    {"clusterQueues.alone.quota.v6e-4x4.slices": 3},
    {"clusterQueues.alone.cohort": "lab"},
    {"clusterQueues.alone.cohort": "org", "clusterQueues.alone.fairWeight": 0.0005},
    {"clusterQueues.product.cohort": ""},
    {"clusterQueues.product.cohort": "tpu"},
    {"clusterQueues.research.fairWeight": 0.5},
    {"clusterQueues.product.fairWeight": 1000},
    {"clusterQueues.product.queueingStrategy": "StrictFIFO"},
    {"clusterQueues.product.stopPolicy": "Hold"},
    {"clusterQueues.product.preemption.withinClusterQueue": "LowerOrNewerEqualPriority"},
    {"clusterQueues.product.preemption.reclaimWithinCohort": "Any"},
    {"clusterQueues.product.preemption.borrowWithinCohort": "LowerPriority"},
    {
        "clusterQueues.research.preemption.borrowWithinCohort": "Never",
        "clusterQueues.research.preemption.maxPriorityThreshold": "",
    },
    {"clusterQueues.research.preemption.maxPriorityThreshold": "high"},
    {"clusterQueues.research.preemption.withinClusterQueue": ""},
    {"clusterQueues.research.flavorFungibility.whenCanBorrow": ""},
    {"clusterQueues.product.flavorFungibility.whenCanPreempt": "TryNextFlavor"},
    {"cohorts.tpu.parent": ""},
    {"cohorts.tpu.fairWeight": 2},
    {"cohorts.lab.parent": "tpu", "cohorts.lab.fairWeight": 1.5},
    {"cohorts.tpu.quota.v5e-2x4.slices": 4},
    {"cohorts.org.quota.v6e-4x4.slices": 2},
    {"priorities.low.value": 200},
    {"teams.alone.clusterQueue": "product"},
]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Values, Platform, QueueChanges]:
    file = tmp_path_factory.mktemp("many") / "queues.yaml"
    file.write_text(MANY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_HELM", str(tool("helm")))
        user, effective = release_values.load("queues", [str(file)], [])
        platform = from_values.platform_of(user, effective)
    return user, platform, QueueChanges(platform, effective.tree)


def rendered(user: Values, choice: Choice) -> Platform:
    for path, value in choice.items():
        user = set_value(user, path, value, Origin("--set", 1))
    return from_values.platform_of(user, release_values.effective_of("queues", user))


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: " ".join(changes))
def test_changed_objects_are_those_of_the_chart(
    many: tuple[Values, Platform, QueueChanges], changes: dict[str, Any]
) -> None:
    user, before, made = many
    choice = {tuple(key.split(".")): value for key, value in changes.items()}
    for path, value in choice.items():
        made.check(path, [value])
    after = made.changed(choice)
    wanted = rendered(user, choice)
    assert differences(after, wanted) == []
    assert differences(before, wanted) != []
    assert [queue.quotas for queue in after.cluster_queues] == [queue.quotas for queue in wanted.cluster_queues]


def test_each_key_that_can_be_varied_is_compared_with_the_chart() -> None:
    compared = {tuple(key.split(".")) for changes in CHANGES for key in changes}
    assert {(path[0], path[2]) for path in compared} == {(kind, key) for kind, keys in KEYS.items() for key in keys}
    schema = json.loads((charts_dir() / "queues" / "values.schema.json").read_text())["properties"]
    queue = schema["clusterQueues"]["additionalProperties"]["properties"]
    # The other keys of a queue have no effect in a simulation.
    assert {*queue} - {*KEYS["clusterQueues"]} == {
        "admissionChecks",
        "admissionFairSharing",
        "chipsAlone",
        "create",
        "namespaceSelector",
    }
    assert {*schema["cohorts"]["additionalProperties"]["properties"]} - {*KEYS["cohorts"]} == {"create"}
    for key in ("preemption", "flavorFungibility"):
        assert {path[3] for path in compared if path[2] == key} == {*queue[key]["properties"]}


def test_random_combinations_are_those_of_the_chart(many: tuple[Values, Platform, QueueChanges]) -> None:
    user, _, made = many
    source = random.Random(7)  # not for security
    accepted = 0
    for _ in range(12):
        choice = {
            tuple(key.split(".")): value for changes in source.sample(CHANGES, 4) for key, value in changes.items()
        }
        try:
            wanted = rendered(user, choice)
        except CheckFailed:
            continue
        accepted += 1
        assert differences(made.changed(choice), wanted) == []
    assert accepted >= 4


def test_a_difference_from_the_chart_is_an_error(
    files: tuple[list[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A bug is simulated: the search computes a quota that the chart does not render.
    fields = queue_fields.FIELDS["clusterQueues"]
    field, value_of = fields["quota"]

    def wrong(entry: Any, tables: Any) -> Any:
        return json.loads(json.dumps(value_of(entry, tables)).replace('"64"', '"65"'))

    monkeypatch.setitem(fields, "quota", (field, wrong))
    with pytest.raises(RuntimeError, match=r"The chart renders other objects .*: ClusterQueue research\."):
        advise(*files, Goal.parse("wait:research"), [SLICES.format("research", "4")], grow=True)


def test_helm_renders_the_queues_and_each_printed_change_once(
    files: tuple[list[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rendering = from_values.platform_of
    calls: list[Values] = []

    def counted(user: Values, effective: Values) -> Platform:
        calls.append(user)
        return rendering(user, effective)

    monkeypatch.setattr(from_values, "platform_of", counted)
    found = advise(
        *files,
        Goal.parse("wait:research"),
        [
            SLICES.format("research", "2,4,6"),
            "clusterQueues.research.fairWeight=1,2",
            "clusterQueues.research.cohort=all,other",
            "clusterQueues.product.preemption.borrowWithinCohort=Never,LowerPriority",
            "clusterQueues.product.preemption.reclaimWithinCohort=Any",
        ],
        grow=True,
    )
    assert found.tried == 24
    # The other keys have no effect here, so they are not in the overlays.
    assert [each.values for each in found.found] == [
        {"clusterQueues": {"research": {"quota": {"v6e-4x4": {"slices": slices}}}}} for slices in (6, 4)
    ]
    # The queues as they are, the last value of all bounds, and each printed change.
    assert len(calls) == 2 + len(found.found)


def test_a_combination_that_the_chart_rejects_is_left_out(files: tuple[list[str], Path]) -> None:
    # The best for research is that product has nothing, which the chart rejects: product cannot borrow.
    found = advise(
        *files, Goal.parse("wait:research"), [SLICES.format("research", "4..6"), SLICES.format("product", "0,2")]
    )
    assert [each.values["clusterQueues"]["product"] for each in found.found] == [{"quota": {"v6e-4x4": {"slices": 2}}}]
    assert found.found[0].goal == pytest.approx(3 * 3600, abs=30)
    assert found.notes[-1] == (
        "The chart rejects a better change and 2 more, which are left out: clusterQueues.product.quota.v6e-4x4.slices "
        "is 0 and the queue cannot borrow, so no run would ever start; set it to at least 1."
    )


def test_keys_that_a_simulation_cannot_vary_are_named(files: tuple[list[str], Path]) -> None:
    for bound, sentence in (
        ("clusterQueues.research.chipsAlone=true", "a simulation cannot vary this key."),
        ("clusterQueues.reserch.cohort=all", 'there is no clusterQueues.reserch; did you mean "research"?'),
        ("clusterQueues.research.quota.v6e-4x8.slices=1", 'there is no flavor "v6e-4x8"; did you mean "v6e-4x4"?'),
        ("clusterQueues.research.cohort=al", 'there is no entry "al" in cohorts; did you mean "all"?'),
        ("flavors.v6e-4x4.topology=4x8", "a simulation cannot vary flavors."),
    ):
        with pytest.raises(UsageError) as caught:
            advise(*files, Goal.parse("lost"), [bound])
        assert sentence in caught.value.message
    # A value in the middle is checked, too.
    with pytest.raises(CheckFailed, match="queueingStrategy"):
        advise(*files, Goal.parse("lost"), ["clusterQueues.research.queueingStrategy=StrictFIFO,Strict,BestEffortFIFO"])
    with pytest.raises(CheckFailed, match="cohorts is a list; it must be a map"):
        advise(*files, Goal.parse("lost"), ["cohorts={}"])
    with pytest.raises(CheckFailed, match=r"fairWeight is the queue's share of a cohort; it requires"):
        advise(*files, Goal.parse("lost"), ["clusterQueues.alone.fairWeight=1,2"])


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
