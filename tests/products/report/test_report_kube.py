"""The times when a run had its chips, from what the real Kueue, JobSet and KubeRay wrote (tests/upstream)."""

from __future__ import annotations

import copy

import pytest

from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.kubernetes.states import ObservedRun
from launcher.k8s import objects
from launcher.k8s.client import EVENT
from launcher.k8s.kueue.workloads import Workload
from launcher.products.report import sources
from launcher.products.report.kube import History, history
from launcher.products.report.metrics import time_of
from launcher.products.report.model import Phase
from launcher.products.report.timeline import spans
from tests.unit import recorded
from tests.unit.recorded import Recorded
from tests.unit.test_kubernetes_backend import backend, cluster


def observed_run(cluster: Recorded, kind: str, name: str) -> ObservedRun:
    obj = cluster.find(kind, name)
    uid = objects.uid(obj)
    workloads = [one for one in cluster.objects if one["kind"] == "Workload" and uid in objects.owner_uids(one)]
    return ObservedRun(RunObject.parse(obj), Workload(workloads[0]) if workloads else None)


def history_of(
    recording: str, seconds: float, kind: str, name: str, *, events: bool = True
) -> tuple[ObservedRun, History, float]:
    cluster = recorded.at(recording, seconds)
    observed = observed_run(cluster, kind, name)
    end = cluster.now.timestamp()
    return observed, history(observed, cluster.list(EVENT, all_namespaces=True) if events else [], end), end


def phases(observed: ObservedRun, found: History, end: float) -> list[tuple[str, float]]:
    created = time_of(observed.run.created)
    return [(str(span.phase), span.seconds) for span in spans(created, found.held, found.changes, end)]


@pytest.mark.parametrize("events", [True, False])
def test_preempted_and_started_again(events: bool) -> None:
    """low-3 trains, is preempted for 13 s, and trains again. Without Events, its first time with chips is unknown."""
    observed, found, end = history_of("preempted-by-priority", 30, "JobSet", "low-3", events=events)
    phases_of_run = phases(observed, found, end)
    names = [name for name, _ in phases_of_run]
    if not events:
        assert len(found.held) == 1
        assert "before 1 of its evictions are no longer known" in found.missing[0]
        assert names[-2:] == ["starting", "training"]
        return
    assert found.missing == []
    assert [held.after for held in found.held][:1] == [Phase.PREEMPTED]
    assert names[-3:] == ["preempted", "starting", "training"]
    assert dict(phases_of_run)["preempted"] == pytest.approx(13.3, abs=0.2)
    assert sum(held.end - held.start for held in found.held) == pytest.approx(8.1 + end - found.held[1].start, abs=0.2)
    events_shown = [mark.what for mark in found.marks]
    assert events_shown.count("preempted") == 1
    assert events_shown.count("admitted") == 2
    assert "UID" not in "".join(mark.says for mark in found.marks)


def test_while_it_is_preempted() -> None:
    observed, found, end = history_of("preempted-by-priority", 15, "JobSet", "low-3")
    assert phases(observed, found, end)[-1][0] == "preempted"


def test_restarted_and_failed() -> None:
    observed, found, end = history_of("run-fails-after-restarts", 17, "JobSet", "fails")
    phases_of_run = phases(observed, found, end)
    assert [name for name, _ in phases_of_run if name != "queued"][:3] == ["starting", "restarting", "training"]
    assert [mark.what for mark in found.marks if mark.bad] == ["restarts", "no restarts left", "failed"]


def test_restarts_of_single_slices_are_marks() -> None:
    """JobSet does not report when a slice is ready again: its pods and the trainer's events do."""
    cluster = recorded.at("run-fails-after-restarts", 17)
    events = copy.deepcopy(cluster.list(EVENT, all_namespaces=True))
    for event in events:
        if event["reason"] == "RestartJobSetFailurePolicyAction":
            event["reason"] = "RestartJobFailurePolicyAction"
    observed = observed_run(cluster, "JobSet", "fails")
    found = history(observed, events, cluster.now.timestamp())
    assert [mark.what for mark in found.marks if mark.bad] == ["a slice restarts", "no restarts left", "failed"]


def test_waiting_all_the_time() -> None:
    observed, found, end = history_of("larger-than-quota", 10, "JobSet", _run_of("larger-than-quota", 10))
    assert found.held == []
    assert [name for name, _ in phases(observed, found, end)] == ["queued"]


def test_a_ray_job() -> None:
    observed, found, end = history_of("rayjob-head-killed", 140, "RayJob", "headless")
    assert [name for name, _ in phases(observed, found, end) if name != "queued"] == ["starting", "training"]
    assert "Ray cluster created" in [mark.what for mark in found.marks]


def test_without_its_workload_the_report_states_it() -> None:
    observed, _, end = history_of("preempted-by-priority", 30, "JobSet", "low-3")
    found = history(ObservedRun(observed.run), [], end)
    assert found.held == []
    assert "Its Workload no longer exists" in found.missing[0]


def test_without_a_queue_it_has_its_chips_at_once() -> None:
    observed, _, end = history_of("rayjob-head-killed", 140, "RayJob", "headless")
    alone = copy.deepcopy(dict(observed.run.raw))
    del alone["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    found = history(ObservedRun(RunObject.parse(alone)), [], end)
    assert len(found.held) == 1
    assert found.missing == []


def _run_of(recording: str, seconds: float) -> str:
    return str(
        next(one for one in recorded.at(recording, seconds).objects if one["kind"] == "JobSet")["metadata"]["name"]
    )


def test_a_report_without_the_right_to_read_events() -> None:
    here = cluster("rayjob-succeeds", 25)
    runs = backend(here)
    status = runs.status("good")
    assert status is not None
    here.hidden = {("events", here.namespace)}
    missing = sources._of_cluster(runs, status, print).missing
    assert "Its Events could not be read, so only its last admission and eviction are known: No." in missing
