"""The runs of a trace that come from their folders: when they had quota, and which of them have no Workload."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import gcsfs  # type: ignore[import-untyped]  # it ships no types
import pytest

from launcher.backends.kubernetes.run_object import RunObject
from launcher.k8s.kueue.workloads import Workload
from launcher.products.planner.simulation.cluster_state import ClusterState
from launcher.products.planner.simulation.record import RecordedTrace, record
from launcher.products.planner.simulation.run_folders import read_storages, storages_of
from launcher.products.planner.simulation.trace import read_trace
from tests.bucket import bucket
from tests.products.planner.test_simulation_live import state, workload
from tests.products.planner.test_simulation_trace import trace
from tests.products.report import report_runs as runs

DAY = 86_400.0
TEN = datetime.fromisoformat("2026-11-01T10:00:00Z").timestamp()


def config(name: str, *, kind: str = "job-set", **over: Any) -> dict[str, Any]:
    """The run config of research as the chart writes it: two slices of v6e 4x4."""
    base = runs.config(name, checkpoint_period=20)
    return {
        **base,
        "run": {**base["run"], "kind": kind},
        "team": {"name": "research", "namespace": "research"},
        "queue": {"name": "", "priority": "high"},
        "slice": {**base["slice"], "count": 2},
        **over,
    }


def phase(at: float, name: str) -> dict[str, Any]:
    return {"event": "phase", "time": runs.stamp(at), "phase": name}


def event(at: float, kind: str) -> dict[str, Any]:
    return {"event": kind, "time": runs.stamp(at), "message": "x"}


def trained(folder: Path, name: str, begin: float = TEN, **over: Any) -> Path:
    """Write the folder of a run with Ray: it starts for 60 s and does 100 steps, the first after 40 s more."""
    return runs.write(
        folder / name,
        metrics=runs.steps(100, begin=begin + 60, seconds=10.0),
        events=[phase(begin, "ray"), phase(begin + 10, "imports"), runs.loop(begin + 60)],
        config=config(name, **over),
    )


def recorded(
    folder: Path, *workloads: Workload, on: ClusterState | None = None, anonymous: bool = False
) -> RecordedTrace:
    found = read_storages([str(folder)])
    assert found.notes == []
    return record(on or state(*workloads), 30 * DAY, found.runs, assumed=60.0, anonymous=anonymous)


def test_a_deleted_run_is_a_row_that_a_trace_can_have(tmp_path: Path) -> None:
    trained(tmp_path / "runs", "gone")
    answer = recorded(tmp_path / "runs")
    (row,) = answer.rows
    last = json.loads((tmp_path / "runs/gone/metrics.jsonl").read_text().splitlines()[-1])["time"]
    lasts = datetime.fromisoformat(last).timestamp() - TEN
    assert lasts > 1000
    assert row == {
        "name": "research/gone/folder-1",
        "team": "research",
        "flavors": ["v6e"],
        "chips": 32,
        "priority": "high",
        "arrives": "2026-11-01T10:00:00Z",
        "lasts": round(lasts),
        "checkpointEvery": pytest.approx(20 * 10.2, abs=4),
    }
    assert answer.notes[0].startswith("1 runs whose Workload no longer exists are from their folders")
    (run,) = read_trace(trace(tmp_path, json.dumps(answer.rows), "trace.json")).runs
    assert (run.flavors, run.chips, run.lasts) == (("v6e",), 32, round(lasts))


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        # Preempted after 100 s, and started again an hour later for 50 s.
        (
            [phase(TEN, "ray"), event(TEN + 100, "preempted"), phase(TEN + 3700, "ray"), runs.loop(TEN + 3750)],
            100 + 50,
        ),
        # Killed without an event.
        ([phase(TEN, "ray"), runs.loop(TEN + 80), phase(TEN + 3700, "ray"), runs.loop(TEN + 3750)], 80 + 50),
        # A failed worker: the driver continues, and the run keeps its quota.
        (
            [
                phase(TEN, "ray"),
                phase(TEN + 5, "imports"),
                event(TEN + 100, "worker_failed"),
                phase(TEN + 400, "imports"),
            ],
            400,
        ),
        # Without Ray, each process begins with the imports.
        ([phase(TEN, "imports"), event(TEN + 90, "stopped"), phase(TEN + 3700, "imports"), runs.loop(TEN + 3730)], 120),
        # As older versions wrote it, without phases.
        ([runs.loop(TEN), event(TEN + 90, "preempted"), runs.loop(TEN + 3700), event(TEN + 3740, "error")], 130),
    ],
)
def test_the_time_with_quota_has_no_waits(tmp_path: Path, events: list[Mapping[str, Any]], seconds: float) -> None:
    runs.write(tmp_path / "one", events=events, config=config("one"))
    (row,) = recorded(tmp_path).rows
    assert (row["arrives"], row["lasts"]) == ("2026-11-01T10:00:00Z", seconds)


def test_a_run_in_both_sources_is_once_in_the_trace(tmp_path: Path) -> None:
    trained(tmp_path, "kept", TEN + 120)
    answer = recorded(tmp_path, workload("kept", 32, held="10:01:00", created="10:00:30"))
    assert [row["name"] for row in answer.rows] == ["research/kept/kept"]
    assert not any("folders" in note for note in answer.notes)


def test_what_a_folder_has_from_before_its_workload_is_another_run(tmp_path: Path) -> None:
    """The run was deleted and submitted again with the same name: its folder has both."""
    runs.write(
        tmp_path / "again",
        events=[phase(TEN, "ray"), runs.loop(TEN + 70), phase(TEN + 3700, "ray"), runs.loop(TEN + 3750)],
        config=config("again"),
    )
    answer = recorded(tmp_path, workload("again", 32, held="11:00:30", created="11:00:00"))
    assert [row["name"] for row in answer.rows] == ["research/again/folder-1", "research/again/again"]
    assert answer.rows[0]["lasts"] == 70


def test_a_copy_of_a_folder_adds_nothing(tmp_path: Path) -> None:
    for place in ("bucket", "copy"):
        trained(tmp_path / place, "gone")
    found = read_storages([str(tmp_path / "bucket"), str(tmp_path / "copy"), f"{tmp_path}/copy/"])
    assert len(found.runs) == 2
    assert len(record(state(), 30 * DAY, found.runs, assumed=60.0, anonymous=False).rows) == 1


def test_runs_that_are_left_out(tmp_path: Path) -> None:
    trained(tmp_path, "old", TEN - 40 * DAY)
    trained(tmp_path, "of-a-ray-cluster", kind="ray-cluster")
    trained(tmp_path, "of-no-queue", queue={"name": "other", "priority": ""})
    trained(tmp_path, "of-other-chips", accelerator={"name": "h100", "kind": "gpu", "topology": "", "chips": 8})
    runs.write(tmp_path / "of-this-machine", config=config("of-this-machine"), record={"format": 1})
    (tmp_path / "weights").mkdir()
    answer = recorded(tmp_path)
    assert answer.rows == []
    assert answer.notes[0] == "2 runs without chips, or of queues that do not exist, are left out."


def test_numbers_of_a_folder_that_are_not_valid(tmp_path: Path) -> None:
    """Any user who may write to the storage can write any number."""
    damaged, whole = config("damaged"), runs.steps(20, begin=TEN)
    damaged["train"]["checkpoint_period"] = 10**400
    steps = [{**step, "step_seconds": seconds} for step, seconds in zip(whole[:3], (1e308, -1, True), strict=True)]
    runs.write(tmp_path / "damaged", metrics=[*steps, *whole[3:]], config=damaged)
    runs.write(
        tmp_path / "negative",
        metrics=runs.steps(20, begin=TEN),
        config=config("negative", slice={"accelerator": "v6e", "topology": "4x4", "count": -1}),
    )
    answer = recorded(tmp_path)
    assert [(row["name"], "checkpointEvery" in row) for row in answer.rows] == [("research/damaged/folder-1", False)]


def test_a_member_gets_the_folders_of_the_namespace(tmp_path: Path) -> None:
    trained(tmp_path, "ours")
    trained(tmp_path, "theirs", team={"name": "product", "namespace": "product"})
    answer = recorded(tmp_path, on=replace(state(), all_visible=False))
    assert [row["name"] for row in answer.rows] == ["research/ours/folder-1"]


def test_the_flavors_of_a_run_with_alternatives(tmp_path: Path) -> None:
    ways = [{"provisioning": "on-demand"}, {"provisioning": "spot"}]
    trained(tmp_path, "either", slice={"accelerator": "v6e", "topology": "4x4", "count": 1, "any": ways})
    trained(
        tmp_path, "spot", TEN + 1, slice={"accelerator": "v6e", "topology": "4x4", "count": 1, "provisioning": "spot"}
    )
    assert [row["flavors"] for row in recorded(tmp_path).rows] == [["spot", "v6e"], ["spot"]]


def test_an_anonymous_trace_has_no_name_of_a_folder(tmp_path: Path) -> None:
    trained(tmp_path, "secret-name")
    (row,) = recorded(tmp_path, anonymous=True).rows
    assert (row["name"], row["team"]) == ("run-1", "team-1")


def test_storages_and_folders_that_cannot_be_read(tmp_path: Path) -> None:
    trained(tmp_path / "runs", "damaged")
    (tmp_path / "runs/damaged/run.json").write_text("{")
    (tmp_path / "runs/unreadable/run.json").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    found = read_storages([str(tmp_path / place) for place in ("runs", "empty", "missing")])
    assert found.runs == []
    assert [note.replace(str(tmp_path), "") for note in found.notes] == [
        "1 folders in /runs are left out. /runs/unreadable/run.json cannot be read: Is a directory.",
        "1 folders in /runs have no run.json that can be read, and are left out.",
        "/empty contains no folder of a cluster's run.",
        "The runs in /missing are left out. /missing cannot be read: No such file or directory.",
    ]


def test_the_folders_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path / "team-runs", "gone")
    (tmp_path / "team-runs/gone/checkpoints/99").mkdir(parents=True)
    (tmp_path / "team-runs/gone/checkpoints/99/array").write_text("x")
    (tmp_path / "team-runs/text").mkdir()
    (tmp_path / "team-runs/text/a.md").write_text("x")
    for status in (200, 403):
        gcsfs.GCSFileSystem.clear_instance_cache()  # it keeps the address of its server
        with bucket(tmp_path, status) as url:
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
            found = read_storages(["gs://team-runs", "gs://team-runs/"])
        if status == 200:
            assert found.notes == []
            assert [(run.name, len(run.held)) for run in found.runs] == [("gone", 1)]
        else:
            assert found.runs == []
            (note,) = found.notes
            assert note.startswith("The runs in gs://team-runs are left out. You may not read gs://team-runs: ")
    gcsfs.GCSFileSystem.clear_instance_cache()


def run_object(name: str, storage: Mapping[str, Any]) -> RunObject:
    text = json.dumps(config(name, storage=storage))
    template = {"metadata": {"annotations": {"slipway.dev/run-config": text}}}
    jobs = [{"template": {"spec": {"template": template}}}]
    metadata = {"name": name, "namespace": "research", "uid": name}
    return RunObject.parse({"kind": "JobSet", "metadata": metadata, "spec": {"replicatedJobs": jobs}})


def test_the_storages_of_the_runs_of_a_cluster() -> None:
    objects = [
        run_object("one", {"kind": "gcsfuse", "bucket": "team-runs"}),
        run_object("two", {"kind": "gcsfuse", "bucket": "team-runs"}),
        run_object("chained", {"kind": "gcsfuse", "bucket": "x::http://localhost"}),
        run_object("three", {"kind": "pvc", "claim": "disk"}),
        run_object("four", {"kind": "local", "mountPath": "/runs"}),
    ]
    assert storages_of(objects) == (["gs://team-runs"], ["research/disk"])
