"""The runs of a cluster as jobs: names, evicted runs, stopped queues, and where the duration of a run comes from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import RunStatus, State
from launcher.backends.kubernetes.run_object import RunObject
from launcher.errors import UsageError
from launcher.k8s.kueue.queues import LocalQueue
from launcher.k8s.kueue.workloads import Workload
from launcher.products.planner.cli.simulation_text import live_text
from launcher.products.planner.forecast import known_forecast
from launcher.products.planner.forecast import program as programs
from launcher.products.planner.forecast.cache import Cache
from launcher.products.planner.forecast.request import request
from launcher.products.planner.simulation import durations
from launcher.products.planner.simulation.changes import Changes
from launcher.products.planner.simulation.cluster_state import ClusterState
from launcher.products.planner.simulation.durations import Source
from launcher.products.planner.simulation.live import expectations, with_change
from launcher.products.planner.simulation.live_runs import live_runs
from launcher.products.planner.simulation.offline import Kueue
from launcher.products.planner.simulation.page import page
from launcher.products.planner.simulation.platform import Platform
from tests.products.planner.forecasts import LLAMA, plan, program
from tests.products.planner.test_simulation_trace import local, platform, queue

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def workload(name: str, chips: int, *, held: str = "", created: str = "11:00:00", **over: Any) -> Workload:
    """A Workload of research; `held` is the time of its reservation, such as 11:30:00."""
    container = {"name": "c", "resources": {"requests": {"google.com/tpu": chips}}}
    owner = {"kind": "JobSet", "name": over.pop("owner", name), "controller": True, "uid": name}
    conditions = over.pop("conditions", [])
    status: dict[str, Any] = {"conditions": conditions, **over.pop("status", {})}
    if held:
        since = f"2026-11-01T{held}Z"
        kind = {"status": "True", "reason": "x", "message": "", "lastTransitionTime": since}
        status["conditions"] = [{**kind, "type": "QuotaReserved"}, {**kind, "type": "Admitted"}, *conditions]
        usage = {
            "name": "main",
            "count": 1,
            "flavors": {"google.com/tpu": "v6e"},
            "resourceUsage": {"google.com/tpu": chips},
        }
        status["admission"] = {"clusterQueue": "research", "podSetAssignments": [usage]}
    return Workload(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": f"jobset-{name}",
                "namespace": "research",
                "uid": name,
                "creationTimestamp": f"2026-11-01T{created}Z",
                "labels": {"kueue.x-k8s.io/job-uid": name},
                "ownerReferences": [owner],
            },
            "spec": {
                "queueName": "research",
                "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
                **over,
            },
            "status": status,
        }
    )


def state(*workloads: Workload, stop: str = "None", on: Platform | None = None) -> ClusterState:
    on = on or platform()
    local_queue = local("research", "research")
    local_queue["spec"]["stopPolicy"] = stop
    return ClusterState(
        now=NOW,
        namespace="research",
        platform=on,
        queues=on.cluster_queues,
        local_queues={("research", "research"): LocalQueue(local_queue)},
        workloads=workloads,
        runs={},
        statuses={},
        kueue=Kueue(),
        all_visible=True,
    )


def starts(answer: Any) -> dict[str, Any]:
    return {each.run.job.name: each.starts.at for each in answer.runs if each.starts is not None}


def test_runs_start_in_kueues_order_when_quota_is_released() -> None:
    first, second = workload("first", 128, created="11:20:00"), workload("second", 128, created="11:10:00", priority=5)
    found = expectations(state(workload("runs", 128, held="11:00:00"), first, second), assumed=7200)
    assert starts(found) == {"second": pytest.approx(3600, abs=5), "first": pytest.approx(3600 + 7200, abs=5)}
    assert [each.waits_for for each in found.runs if each.run.name == "first"] == [["second"]]


def test_a_run_behind_another_in_a_strict_queue_names_it() -> None:
    on = platform(queue("research", 128, queueingStrategy="StrictFIFO"))
    large, small = workload("large", 128, created="11:10:00"), workload("small", 8, created="11:20:00")
    found = expectations(state(workload("runs", 64, held="11:00:00"), large, small, on=on), assumed=7200)
    assert starts(found) == {"large": pytest.approx(3600, abs=5), "small": pytest.approx(3600 + 7200, abs=5)}
    assert {each.run.name: each.behind for each in found.runs} == {"large": "", "small": "large", "runs": ""}
    assert "small waits behind large: the queue research admits runs strictly in order." in live_text(found)


def test_the_runs_of_all_namespaces() -> None:
    other = workload("a", 8)
    other.raw["metadata"]["namespace"] = "product"
    now = replace(
        state(other, workload("a", 8)),
        local_queues={
            (name, "research"): LocalQueue(local("research", "research")) for name in ("research", "product")
        },
    )
    assert [each.run.job.name for each in expectations(now).runs] == ["a"]
    everywhere = expectations(replace(now, all_namespaces=True))
    assert {each.run.job.name for each in everywhere.runs} == {"a", "product/a"}
    assert "product/a" in live_text(everywhere)
    assert everywhere.namespace == ""


def test_a_run_that_preempts_names_its_victim_and_the_victim_it() -> None:
    on = platform(queue("research", 64, preemption={"withinClusterQueue": "LowerPriority"}))
    urgent = workload("urgent", 64, priority=1000)
    found = expectations(state(workload("runs", 64, held="11:00:00"), urgent, on=on), assumed=7200)
    assert starts(found) == {"urgent": pytest.approx(0, abs=5)}
    by_name = {each.run.name: each for each in found.runs}
    assert by_name["urgent"].preempts == ["runs"]
    assert by_name["runs"].preempted_by == ["urgent"]
    # It ends after urgent, and starts from its beginning: no checkpoint of it is known.
    assert by_name["runs"].ends.at == pytest.approx(7200 + 7200, abs=10)
    text = live_text(found)
    assert "urgent preempts runs." in text
    assert "runs is preempted by urgent, and starts again." in text


def test_a_run_is_added_only_under_a_new_name() -> None:
    now = state(workload("a", 64, held="11:00:00"))
    answer = expectations(now)
    run = "{name: %s, queue: research, chips: 64, arrives: 0, lasts: 1h}"
    changed = with_change(now, answer, Changes(add=[run % "b"])).changed
    assert changed is not None
    assert sorted(run.name for run in changed.runs) == ["a", "b"]
    with pytest.raises(UsageError, match=r'--add 2: another run has the name "a"\.'):
        with_change(now, answer, Changes(add=[run % "b", run % "a"]))


def test_the_page_has_what_the_text_has(tmp_path: Path) -> None:
    first, second = workload("first", 128, created="11:20:00"), workload("second", 128, created="11:10:00", priority=5)
    found = expectations(state(workload("runs", 128, held="11:00:00"), first, second), assumed=7200)
    text = page(found.comparison, "Runs", found.runs)
    assert "<p>first waits for the quota of second.</p>" in text
    for each in found.runs:
        for cell in (each.run.name, each.ends.text, each.run.duration.text):
            assert cell in live_text(found)
            assert f">{cell}<" in text


def test_a_check_can_end_the_simulation() -> None:
    """At any event: here at each of the first ones, and at none after the last."""
    now = state(workload("runs", 128, held="11:00:00"), workload("first", 128))

    def check(left: list[None]) -> None:
        try:
            left.pop()
        except IndexError:
            raise TimeoutError from None

    for calls in range(12):
        with pytest.raises(TimeoutError):
            expectations(now, check=partial(check, [None] * calls))
    assert starts(expectations(now, check=partial(check, [None] * 1000))) == starts(expectations(now))


def test_two_objects_with_one_name_are_two_runs() -> None:
    runs, _ = live_runs(state(workload("a", 8, owner="same"), workload("b", 8, owner="same")), 60)
    assert set(runs) == {"same", "same (jobset-b)"}


def test_a_run_that_was_evicted_returns_to_its_queue_later() -> None:
    requeued = {"type": "Requeued", "status": "False", "reason": "x", "message": "", "lastTransitionTime": ""}
    later = workload(
        "late", 8, conditions=[requeued], status={"requeueState": {"count": 1, "requeueAt": "2026-11-01T12:10:00Z"}}
    )
    assert starts(expectations(state(later))) == {"late": pytest.approx(600, abs=2)}


def test_what_does_not_start() -> None:
    found = expectations(state(workload("a", 8), stop="Hold"))
    assert starts(found) == {"a": None}
    assert "a does not start: the LocalQueue research is stopped." in live_text(found)
    assert expectations(state(workload("a", 8, active=False))).runs == []
    finished = {"type": "Finished", "status": "True", "reason": "x", "message": "", "lastTransitionTime": ""}
    assert expectations(state(workload("a", 8, conditions=[finished]))).runs == []
    (other,) = expectations(state(workload("a", 8, queueName="nosuch"))).notes
    assert other == "a waits in a queue that does not exist (nosuch)."
    assert live_text(expectations(state())) == "No run of this namespace waits or runs in a queue."


def status(**fields: Any) -> RunStatus:
    return RunStatus(name="r", namespace="n", kind="job-set", state=State.RUNNING, **fields)


def test_the_sources_of_a_duration_in_their_order() -> None:
    measured = status(step=100, steps=1000, seconds_left=1800.0)
    config = {"train": {"steps": 1000, "checkpoint_period": 50}}
    both: dict[str, Any] = {"config": config, "deadline": 7200.0, "held": 600.0, "assumed": 3600.0}
    found = durations.time_left(status=measured, **both)
    assert (found.source, found.seconds, found.shortest, found.longest) == (Source.MEASURED, 1800, 1710, 2070)
    found = durations.time_left(status=None, **both)
    assert (found.source, found.seconds, found.longest) == (Source.DEADLINE, 6600, 6600)
    found = durations.time_left(status=None, **{**both, "deadline": None})
    assert (found.source, found.seconds) == (Source.ASSUMED, 3000)
    # A run that has run for longer than assumed was assumed to be too short.
    longer = durations.time_left(status=None, **{**both, "deadline": None, "held": 9999.0})
    assert longer.seconds == durations.OVERRUN * 3600
    # A deadline and measured steps are known to the second.
    assert durations.time_left(status=None, **{**both, "held": 7195.0}).seconds == 5
    assert durations.time_left(status=None, **{**both, "held": 7300.0}).seconds == durations.LEAST
    last = status(step=999, steps=1000, seconds_left=2.0)
    assert durations.time_left(status=last, **both).seconds == 2
    # A run ends at its deadline, also if its steps need longer.
    ends = durations.time_left(status=measured, **{**both, "held": 7195.0})
    assert (ends.source, ends.seconds, ends.text) == (Source.DEADLINE, 5, "its deadline is 2 h")
    assert durations.step_seconds(measured, {}) == 2.0
    assert durations.checkpoint_seconds(config, 2.0) == 100.0
    assert durations.checkpoint_seconds(config, None) is None
    assert durations.checkpoint_seconds({}, 2.0) is None


JOB_SET = {"kind": "JobSet", "metadata": {"name": "a", "namespace": "research"}}


def test_the_deadline_of_a_run() -> None:
    jobs = [{"template": {"spec": {"activeDeadlineSeconds": limit}}} for limit in (90, None, 60)]
    job_set = RunObject.parse({**JOB_SET, "spec": {"replicatedJobs": jobs}})
    assert durations.deadline_of(job_set, workload("a", 8)) == 60
    ray_job = RunObject.parse({**JOB_SET, "spec": {"activeDeadlineSeconds": 90}})
    assert durations.deadline_of(ray_job, workload("a", 8, maximumExecutionTimeSeconds=30)) == 30
    assert durations.deadline_of(None, workload("a", 8)) is None
    # Kueue's limit includes the time before an eviction.
    evicted = workload("a", 8, maximumExecutionTimeSeconds=30, status={"accumulatedPastExecutionTimeSeconds": 20})
    assert durations.deadline_of(ray_job, evicted) == 10


def test_a_run_5_seconds_before_its_deadline_does_not_hold_the_next_one_up() -> None:
    runs = workload("runs", 128, held="11:30:00", maximumExecutionTimeSeconds=1805)
    waits = [workload(f"w{i}", 128, created=f"11:00:0{i}", maximumExecutionTimeSeconds=5) for i in range(4)]
    found = starts(expectations(state(runs, *waits)))
    # 5 s each, and about 1 s in which Kueue learns of each end and decides.
    assert found == {f"w{i}": pytest.approx(6 * (i + 1), abs=0.5) for i in range(4)}


def test_a_forecast_in_the_cache_gives_the_time_of_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    planned = plan(LLAMA, "train.steps=1000")
    Cache(tmp_path / "forecast").put(request(planned), programs.read(program()))
    speed = known_forecast.speed(planned.config)
    assert speed is not None
    given: dict[str, Any] = {"config": planned.config, "deadline": None, "assumed": 60.0}
    waits = durations.time_left(status=None, held=0.0, **given)
    assert waits.source is Source.FORECAST
    assert waits.seconds == pytest.approx(1000 * speed.step_seconds)
    assert waits.text == f"1,000 steps of {speed.step_seconds:.3g} s, as forecast"
    runs = durations.time_left(status=status(step=400, steps=1000), held=9.0, **given)
    assert runs.seconds == pytest.approx(max(durations.LEAST, 600 * speed.step_seconds))
    late = durations.time_left(status=None, held=1e6, **given)
    overrun = durations.OVERRUN * 1000 * speed.step_seconds
    assert late.seconds == pytest.approx(max(durations.LEAST, overrun))
    ends = durations.time_left(status=None, held=1e6, **{**given, "deadline": 1e6 + overrun / 2})
    assert ends.source is Source.DEADLINE
    assert ends.seconds == pytest.approx(overrun / 2)
