"""What a cluster tells of a run before it is submitted; most of it is asked of a real API server in tests/cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher import api
from launcher.kube import live
from launcher.kube.snapshot import Snapshot
from tests.unit import recorded
from tests.unit.recorded import Recorded

RUN = """
run: {name: waiting-2, kind: job-set}
team: {name: research}
queue: {name: multislice, priority: urgent}
slice: {accelerator: v5e, topology: 2x4}
image: {repository: example.invalid/slipway, tag: 1.0.0}
storage: {kind: gcsfuse, bucket: example-runs}
data: {files: [/data/text]}
"""


def refusals(cluster: Recorded, folder: Path) -> list[str]:
    file = folder / "run.yaml"
    file.write_text(RUN)
    run = cluster.find("JobSet", "waiting-2")
    run["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "urgent"
    snapshot = Snapshot(cluster)  # type: ignore[arg-type]  # as much of one as is needed
    found = live.problems(api.plan([str(file)], force=True), run, snapshot)
    return [problem.message for problem in found if problem.rule == "live.no_priority"]


def test_a_priority_that_is_not_there(tmp_path: Path) -> None:
    cluster = recorded.at("quota-in-use-by-others", 8)
    none = 'There is no WorkloadPriorityClass "urgent".\n  '
    assert refusals(cluster, tmp_path) == [f"{none}There are: high, low, normal."]
    cluster.drop("WorkloadPriorityClass")
    hint = 'There are none at all: charts/queues makes them; "" asks for none.'
    assert refusals(cluster, tmp_path) == [f"{none}{hint}"]


@pytest.mark.parametrize("what", ["hidden", "missing"])
def test_priorities_that_cannot_be_seen_are_not_held_against_a_run(what: str, tmp_path: Path) -> None:
    cluster = recorded.at("quota-in-use-by-others", 8)
    if what == "hidden":
        cluster.hidden.add(("workloadpriorityclasses", ""))
    else:
        cluster.missing.add("WorkloadPriorityClass")
    assert refusals(cluster, tmp_path) == []
