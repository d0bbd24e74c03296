"""Files of scenarios: what they may contain, and the line that a simulation prints for each."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from launcher.products.planner.scheduler.simulation import simulate
from launcher.products.planner.simulation.event_lines import as_line
from launcher.products.planner.simulation.scenario_file import FAIR_SHARING, InvalidScenario, read_scenarios
from tests.products.planner.simulate_proof.agreement import CLOSE, compare

QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "q"},
    "spec": {
        "cohortName": "all",
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [
            {
                "coveredResources": ["google.com/tpu"],
                "flavors": [{"name": "a", "resources": [{"name": "google.com/tpu", "nominalQuota": "16"}]}],
            }
        ],
    },
}
SCENARIO: dict[str, Any] = {
    "id": "one",
    "kueue": "0.19.2",
    "fair": False,
    "objects": {"clusterQueues": [QUEUE], "cohorts": []},
    "priorities": {"low": 100, "high": 1000},
    "runs": [
        {"name": "first", "queue": "q", "priority": "low", "chips": 16, "created": 0.0, "takes": 100},
        {"name": "second", "queue": "q", "priority": "high", "chips": 16, "created": 10.0, "takes": 20},
        {"name": "large", "queue": "q", "priority": "low", "chips": 32, "created": 20.0, "takes": 20},
    ],
    "frees": {"first": [1.5]},
}


def scenario(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SCENARIO), **changes}


def write(folder: Path, *lines: Any) -> Path:
    path = folder / "scenarios.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_the_line_of_a_scenario_has_admissions_evictions_and_ends(tmp_path: Path) -> None:
    (read,) = read_scenarios(write(tmp_path, SCENARIO))
    line = as_line(read.id, read.scenario, simulate(read.scenario))
    assert (line["id"], line["never"]) == ("one", ["large"])
    assert [(run, what) for _, run, what, _ in line["events"]] == [
        ("first", "admitted"),
        ("first", "evicted"),
        ("second", "admitted"),
        ("second", "finished"),
        ("first", "admitted"),
        ("first", "finished"),
    ]
    assert [at for at, *_ in line["events"]] == pytest.approx([0, 10, 11.5, 31.5, 31.5, 131.5], abs=CLOSE)
    assert line["events"][0][3] == ["a"]
    assert line["events"][1][3] == {
        "reason": "Preempted",
        "preempted": "InClusterQueue",
        "message": "Preempted to accommodate second due to prioritization in the ClusterQueue; "
        "preemptor path: /all/q; preemptee path: /all/q",
    }
    assert line["events"][-1][3] is None


def test_a_compressed_file_and_fair_sharing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.gz"
    path.write_bytes(gzip.compress(f"{json.dumps(scenario(fair=True, kueue='v0.17.1'))}\n\n".encode()))
    (read,) = read_scenarios(path)
    assert read.scenario.settings.fair_sharing == FAIR_SHARING
    assert read.scenario.settings.version == (0, 17, 1)
    # The median of the scenario, for runs whose evictions it does not have.
    assert [job.frees for job in read.scenario.jobs] == [(1.5,), (1.5,), (1.5,)]


def test_the_intended_times_replace_missing_measured_ones(tmp_path: Path) -> None:
    run = {"name": "r", "queue": "q", "chips": 16, "arrives": 4, "lasts": 9}
    (read,) = read_scenarios(write(tmp_path, scenario(runs=[run], frees={})))
    assert [(job.created, job.takes, job.priority) for job in read.scenario.jobs] == [(4, 9, 0)]


def with_spec(**changes: Any) -> dict[str, Any]:
    queue = copy.deepcopy(QUEUE)
    queue["spec"].update(changes)  # type: ignore[attr-defined]
    return scenario(objects={"clusterQueues": [queue]})


def with_run(**changes: Any) -> dict[str, Any]:
    return scenario(runs=[{**SCENARIO["runs"][0], **changes}])


def cohorts(**parents: str) -> list[dict[str, Any]]:
    return [{"metadata": {"name": name}, "spec": {"parentName": parent}} for name, parent in parents.items()]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "the line is not valid JSON"),
        ("[1]", "a line must be a JSON object"),
        (scenario(run=[]), 'run: is not a known key; did you mean "runs"?'),
        (scenario(id=None), "id: must be text."),
        (scenario(fair="yes"), "fair: must be true or false."),
        (scenario(kueue="0.9.0"), 'kueue: Kueue "0.9.0" is not simulated; the versions are 0.16, 0.17, 0.18, 0.19.'),
        (scenario(objects={}), "objects.clusterQueues: is missing."),
        (scenario(priorities={"low": "100"}), "priorities.low: must be a whole number."),
        (scenario(frees={"other": [1]}), "frees.other: there is no run of this name."),
        (scenario(frees={"first": [-1]}), "frees.first[0]: is -1, but must not be negative."),
        (with_run(chip=1), 'runs[0].chip: is not a known key; did you mean "chips"?'),
        (with_run(queue="p"), 'runs[0] (first).queue: there is no ClusterQueue "p".'),
        (with_run(takes=-3), "runs[0] (first).takes: is -3, but must not be negative."),
        (with_run(chips="16"), "runs[0] (first).chips: must be a number."),
        (with_run(priority="hihg"), 'the priority "hihg" is not in priorities; did you mean "high"?'),
        (scenario(runs=SCENARIO["runs"] + SCENARIO["runs"][:1]), "runs[3] (first).name: another run has this name."),
        (
            with_spec(admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"}),
            "objects.clusterQueues[0] (q).spec.admissionScope: is admission fair sharing, which is not simulated.",
        ),
        (
            with_spec(admissionChecksStrategy={"admissionChecks": [{"name": "multikueue"}]}),
            "spec.admissionChecksStrategy: is admission checks, which is not simulated.",
        ),
        (with_spec(queueStrategy="x"), 'spec.queueStrategy: is not a known field; did you mean "queueingStrategy"?'),
        (with_spec(queueingStrategy="FIFO"), 'is "FIFO"; the values are BestEffortFIFO or StrictFIFO.'),
        (
            with_spec(
                resourceGroups=[{"flavors": [{"name": "a", "resources": [{"name": "x", "nominalQuota": "-1"}]}]}]
            ),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: must not be negative.",
        ),
        (
            scenario(objects={"clusterQueues": [QUEUE, QUEUE]}),
            'objects.clusterQueues: the name "q" occurs more than once.',
        ),
        (
            scenario(objects={"clusterQueues": [QUEUE], "cohorts": cohorts(all="up", up="top", top="up")}),
            "objects.cohorts: the cohorts are a cycle: up -> top -> up.",
        ),
    ],
)
def test_what_is_not_simulated_names_the_line_and_the_key(tmp_path: Path, line: Any, sentence: str) -> None:
    path = write(tmp_path, SCENARIO, line)
    with pytest.raises(InvalidScenario) as caught:
        list(read_scenarios(path))
    assert caught.value.message.startswith(f"{path}:2: ")
    assert sentence in caught.value.message


def test_a_file_without_scenarios_and_one_that_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(InvalidScenario, match="the file has no scenario"):
        list(read_scenarios(write(tmp_path, "")))
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"{}" * 1000)[:20])
    with pytest.raises(InvalidScenario, match=r'The file ".*broken\.gz" cannot be read'):
        list(read_scenarios(broken))
    with pytest.raises(InvalidScenario, match="No such file"):
        list(read_scenarios(tmp_path / "absent"))
    with pytest.raises(InvalidScenario, match='"one" is also the id of line 1'):
        list(read_scenarios(write(tmp_path, SCENARIO, SCENARIO)))


# --- the comparison with a recording ---------------------------------------------------------------------------------


def line(*events: Any, never: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"id": "x", "events": [list(event) for event in events], "never": list(never)}


EVICTED = {"reason": "Preempted", "preempted": "InClusterQueue", "message": ""}


def test_equal_events_agree_and_small_swaps_do_not_matter() -> None:
    real = line((0.0, "a", "created", None), (0.1, "a", "admitted", ["f"]), (1.0, "b", "admitted", ["f"]))
    ours = line((0.9, "b", "admitted", ["f"]), (1.1, "a", "admitted", ["f"]))
    found = compare(real, ours)
    assert found.agrees
    assert (found.admissions, found.close_starts) == (2, 2)


@pytest.mark.parametrize(
    ("ours", "sentence"),
    [
        (line((1, "a", "admitted", ["f"])), "b admitted: recorded at 9.0 s, not simulated"),
        (line((1, "a", "admitted", ["f"]), (9, "b", "admitted", ["g"])), "recorded f at 9.0 s, simulated g at 9.0 s"),
        (line((9, "a", "admitted", ["f"]), (1, "b", "admitted", ["f"])), "a admitted at 1.0 s, before b admitted"),
        (
            line((1, "a", "admitted", ["f"]), (9, "b", "admitted", ["f"]), (12, "a", "evicted", EVICTED)),
            "a evicted: simulated at 12.0 s, not recorded",
        ),
        (
            line((1, "a", "admitted", ["f"]), (9, "b", "admitted", ["f"]), never=("a",)),
            "never finished: recorded [], simulated ['a']",
        ),
    ],
)
def test_differences_are_found(ours: dict[str, Any], sentence: str) -> None:
    found = compare(line((1, "a", "admitted", ["f"]), (9, "b", "admitted", ["f"])), ours)
    assert any(sentence in difference for difference in found.differences)


def test_late_starts_are_counted() -> None:
    real = line((1, "a", "admitted", ["f"]), (9, "b", "admitted", ["f"]))
    found = compare(real, line((1, "a", "admitted", ["f"]), (11.5, "b", "admitted", ["f"])))
    assert found.agrees
    assert (found.close_starts, found.admissions) == (1, 2)
