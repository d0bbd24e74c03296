"""A state of a few seconds is progress, not a failure: pods without nodes, a first failed pull, a preemption."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from launcher.backends.kubernetes import pod_failures
from launcher.diagnose.explain.finding import Explanation
from launcher.k8s.pods import Pod
from tests.unit import recorded
from tests.unit.recorded import Recorded, event, stamp
from tests.unit.test_explain_recordings import explain_run

Object = dict[str, Any]
RUN = "no-nodes"
FULL = "0/1024 nodes are available: 998 Insufficient google.com/tpu, 26 node(s) didn't match Pod's affinity rules."
PROGRESS = f"{RUN} is starting: 382 of its 1,024 pods are ready."


def large(*, unplaced: float, placed: float, ready: int = 382) -> Recorded:
    """Return the recorded run with 1,024 pods: 26 have had no node for `unplaced` seconds, `ready` are ready.

    The last one of the others got its node `placed` seconds ago.
    """
    cluster = recorded.at("admitted-but-no-nodes", 40)
    (job,) = cluster.find("JobSet", RUN)["spec"]["replicatedJobs"]
    job["template"]["spec"]["parallelism"] = 1024
    (workload,) = [obj for obj in cluster.objects if obj["kind"] == "Workload"]
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    assigned["count"] = 1024
    (first, *_) = [obj for obj in cluster.objects if obj["kind"] == "Pod"]
    cluster.drop("Pod")

    def since(seconds: float) -> str:
        return stamp(cluster.now - timedelta(seconds=seconds))

    for number in range(1024):
        pod = copy.deepcopy(first)
        pod["metadata"] |= {"name": f"{RUN}-{number:04}", "uid": f"uid-{number:04}"}
        waits = {"status": "False", "reason": "Unschedulable", "message": FULL, "lastTransitionTime": since(unplaced)}
        runs = {"status": "True", "lastTransitionTime": since(placed)}
        pod["status"]["conditions"] = [{"type": "PodScheduled", **(waits if number < 26 else runs)}]
        if number >= 1024 - ready:
            pod["status"]["conditions"].append({"type": "Ready", "status": "True", "lastTransitionTime": since(placed)})
        cluster.add(pod)
    labels = recorded.FLAVORS["v5e-4x4"]
    return cluster.add(*(recorded.node(f"big-{index}", labels, [], {"google.com/tpu": "4"}) for index in range(8)))


def explained(cluster: Recorded) -> Explanation:
    return explain_run(cluster, "JobSet", RUN)


@pytest.mark.parametrize(
    ("unplaced", "placed"), [(2, 1), (2, 100), (100, 1)], ids=["placing", "only-seconds", "still-placing"]
)
def test_pods_that_are_being_placed_are_progress(unplaced: float, placed: float) -> None:
    explanation = explained(large(unplaced=unplaced, placed=placed))
    assert explanation.headline == PROGRESS
    assert explanation.evidence[0].says == "1,024 of 1,024 exist, and 382 are ready; 26 have no node yet."
    assert explanation.suggestions == ()


def test_pods_that_stay_without_a_node_are_not() -> None:
    explanation = explained(large(unplaced=100, placed=60))
    assert explanation.headline == (
        "no-nodes has its quota, but its pods cannot be scheduled: none of the 8 matching nodes has enough chips left."
    )
    assert explanation.evidence[0].says == "26 of 1,024 have had no node for 1 min 40 s."


def test_nodes_that_are_being_added_are_named_at_once() -> None:
    cluster = large(unplaced=2, placed=1)
    pod = next(obj for obj in cluster.objects if obj["kind"] == "Pod")
    cluster.add(event(cluster, pod, "TriggeredScaleUp", "pod triggered scale-up", warning=False))
    assert explained(cluster).headline.startswith("no-nodes waits for nodes: 1 s ago the cluster began to add nodes")


def waiting(reason: str, message: str, *, seconds: float) -> Recorded:
    """Return the recorded run; its pods got their node `seconds` ago, and their containers wait."""
    cluster = recorded.at("admitted-but-no-nodes", 40)
    since = stamp(cluster.now - timedelta(seconds=seconds))
    for pod in [obj for obj in cluster.objects if obj["kind"] == "Pod"]:
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]
        state = {"waiting": {"reason": reason, "message": message}}
        pod["status"]["containerStatuses"] = [{"name": "trainer", "image": "x:1", "restartCount": 0, "state": state}]
    return cluster


@pytest.mark.parametrize(
    ("reason", "message", "headline"),
    [
        ("ErrImagePull", "x:1: not found", "no-nodes cannot start because the image x:1 cannot be pulled"),
        ("CreateContainerConfigError", 'secret "a" not found', "no-nodes cannot start because the container trainer"),
    ],
)
def test_a_container_that_cannot_start_is_named_after_seconds(reason: str, message: str, headline: str) -> None:
    early = waiting(reason, message, seconds=3)
    assert explained(early).headline == "no-nodes is starting: 0 of its 4 pods are ready."
    assert reason in explained(early).evidence[0].says
    pods = [Pod(obj) for obj in early.objects if obj["kind"] == "Pod"]
    assert pod_failures.failing(pods, early.now) == []
    assert explained(waiting(reason, message, seconds=15)).headline.startswith(headline)


def test_a_gate_is_named_after_seconds() -> None:
    cluster = recorded.at("admitted-but-no-nodes", 40)
    for pod in [obj for obj in cluster.objects if obj["kind"] == "Pod"]:
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    assert explained(cluster).headline == "4 of no-nodes's pods are held back by a scheduling gate."
    for pod in [obj for obj in cluster.objects if obj["kind"] == "Pod"]:
        pod["metadata"]["creationTimestamp"] = stamp(cluster.now)
    assert explained(cluster).headline == "no-nodes is starting: 0 of its 4 pods are ready."


def test_a_rejected_pod_is_named_after_seconds() -> None:
    message = 'Error creating: failed calling webhook "a.b": Post "https://x.y.svc": no endpoints available'
    for seconds, headline in ((5, "no-nodes is admitted, and its pods"), (40, "no-nodes cannot start: the admission")):
        cluster = recorded.at("admitted-but-no-nodes", seconds).drop("Pod")
        job = cluster.find("Job", "no-nodes-slice-0")
        assert explained(cluster.add(event(cluster, job, "FailedCreate", message))).headline.startswith(headline)


def test_a_ray_head_that_has_just_become_ready_may_not_answer_yet() -> None:
    assert "cannot reach its Ray head" in explain_run(recorded.at("rayjob-admitted", 40), "RayJob", "rayjob").headline
    early = recorded.at("rayjob-admitted", 40)
    conditions = early.find("RayJob", "rayjob")["status"]["rayClusterStatus"]["conditions"]
    for condition in conditions:
        condition["lastTransitionTime"] = stamp(early.now - timedelta(seconds=5))
    assert explain_run(early, "RayJob", "rayjob").headline == (
        "rayjob has all its 3 pods, and its job is about to start."
    )


# --- preemptions --------------------------------------------------------------------------------------------------


def test_a_preempted_run_has_not_failed() -> None:
    """JobSet restarts a trainer that Kueue preempts, but does not count the restart (tests/unit/test_states.py)."""
    cluster = recorded.at("preempted-by-priority", 26)
    cluster.find("JobSet", "low-3")["status"]["restarts"] = 1
    explanation = explain_run(cluster, "JobSet", "low-3")
    assert explanation.headline == "low-3 is running (for 1 s)."
    assert explanation.evidence[-1].says == "was preempted once."


def test_a_run_that_starts_after_a_preemption() -> None:
    cluster = recorded.at("preempted-by-priority", 23.5)
    status = cluster.find("JobSet", "low-3")["status"]
    message = "applying RestartJobSetAndIgnoreMaxRestarts failure policy action (first failed job: low-3-slice-0)"
    status["conditions"].append({"type": "RestartingJobSet", "status": "True", "message": message})
    explanation = explain_run(cluster, "JobSet", "low-3")
    assert explanation.headline == "low-3 is starting again after a preemption."
