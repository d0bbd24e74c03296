"""The state of a run, for every moment of everything that the real Kueue, JobSet and KubeRay wrote."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from launcher.backends.kubernetes import states
from launcher.backends.kubernetes.states import ObservedRun
from launcher.k8s import keys, objects
from tests.cluster import recordings

Object = dict[str, Any]

RUNS = ("RayJob", "JobSet")
NOT_MADE = ("queued", "Kueue has not created its Workload yet.")
NOT_SEEN = ("queued", "Kueue has not processed it yet.")
LET_GO = ("admitted", "Its pods are about to be created.")
NO_PODS = ("admitted", "It has no pods yet.")
RUNNING = ("running", "")
SUCCEEDED = ("succeeded", "")
FLAVOR = "couldn't assign flavors to pod set"
QUOTA = f"{FLAVOR} slice: insufficient unused quota for google.com/tpu in flavor v5e-2x4,"
PREEMPTING = " Pending the preemption of 1 workload(s)"
RAY_UP = ("starting", "Ray is up; the job is about to start.")
RAY_STARTS = [
    NOT_MADE,
    NOT_SEEN,
    LET_GO,
    NO_PODS,
    *(("starting", f"{n} of 3 pods are ready.") for n in range(4)),
    RAY_UP,
]
HEAD_LOST = ("restarting", "Its Ray head is lost and is being replaced.")


def starts(hosts: int) -> list[tuple[str, str]]:
    """Admission and start of a run whose pods were seen to become ready one by one."""
    ready = [("starting", f"{number} of {hosts} pods are ready.") for number in range(hosts)]
    return [LET_GO, NO_PODS, *ready, RUNNING]


def queued(message: str) -> list[tuple[str, str]]:
    return [NOT_MADE, NOT_SEEN, ("queued", message)]


# Every state that each run went through, with its reason; a state is listed once as long as it lasts.
SEQUENCES: dict[tuple[str, str], list[tuple[str, str]]] = {
    ("admission-check-inactive", "checked"): queued("ClusterQueue tpu is inactive"),
    ("admission-check-pending", "checked"): queued("Its quota is reserved; it waits for the admission check budget."),
    ("admitted-but-no-nodes", "no-nodes"): [
        NOT_MADE,
        NOT_SEEN,
        LET_GO,
        NO_PODS,
        ("starting", "0 of 4 pods are ready."),
    ],
    ("borrowing-then-reclaimed", "borrows-3"): [
        NOT_MADE,
        NOT_SEEN,
        *starts(6),
        ("preempted", "Preempted to accommodate a workload due to reclamation within the cohort"),
        *starts(6),
    ],
    ("borrowing-then-reclaimed", "owner-2"): [*queued(f"{QUOTA} 16 more needed.{PREEMPTING}"), *starts(4), SUCCEEDED],
    ("cancelled-while-running", "cancelled"): [NOT_MADE, NOT_SEEN, *starts(2)],
    ("head-not-covered-by-quota", "head-uncovered"): queued(
        f"{FLAVOR} head: resource memory unavailable in ClusterQueue"
    ),
    ("larger-than-quota", "slices-4"): queued(
        f"{FLAVOR} slice: insufficient quota for google.com/tpu in flavor v5e-2x4, previously considered podsets "
        "requests (0) + current podset request (32) > maximum capacity (24)"
    ),
    ("no-such-queue", "lost"): queued("LocalQueue nosuch doesn't exist"),
    ("preempted-by-priority", "low-3"): [
        NOT_MADE,
        NOT_SEEN,
        *starts(6),
        ("preempted", "Preempted to accommodate a workload due to prioritization in the ClusterQueue"),
        *starts(6),
    ],
    ("preempted-by-priority", "high-1"): [*queued(f"{QUOTA} 8 more needed.{PREEMPTING}"), *starts(2), SUCCEEDED],
    ("queue-held", "held"): queued("ClusterQueue tpu is inactive"),
    ("quota-in-use-by-others", "first-2"): [NOT_MADE, NOT_SEEN, *starts(4)],
    ("quota-in-use-by-others", "waiting-2"): queued(f"{QUOTA} 8 more needed"),
    # Its pods are on simulated nodes, where no Ray answers.
    ("rayjob-admitted", "rayjob"): [
        *RAY_STARTS,
        (
            "starting",
            "Its Ray head does not answer: error trying to reach service: dial tcp 10.244.0.5:8265: connect: "
            "no route to host",
        ),
    ],
    ("rayjob-fails", "bad"): [
        *RAY_STARTS,
        ("failed", "Job entrypoint command failed with exit code 3"),
    ],
    ("rayjob-head-killed", "headless"): [*RAY_STARTS, RUNNING, HEAD_LOST, RUNNING, SUCCEEDED],
    ("rayjob-succeeds", "good"): [*RAY_STARTS, RUNNING, SUCCEEDED],
    ("run-fails-after-restarts", "fails"): [
        NOT_MADE,
        NOT_SEEN,
        *starts(2),
        ("restarting", "A pod has failed and is being replaced."),
        ("restarting", "The job fails-slice-0 has failed."),
        ("restarting", "A pod has failed and is being replaced."),
        RUNNING,
        ("failed", "It failed again, and run.maxRestarts allows no more restarts."),
    ],
    ("selector-matches-no-flavor", "wrong-topology"): queued(
        f"{FLAVOR} slice: flavor v5e-2x4 doesn't match node affinity"
    ),
    ("three-then-one-and-two", "slices-3"): [NOT_MADE, NOT_SEEN, *starts(6), SUCCEEDED],
    ("three-then-one-and-two", "slices-1"): [*queued(f"{QUOTA} 8 more needed"), *starts(2), SUCCEEDED],
    ("three-then-one-and-two", "slices-2"): [*queued(f"{QUOTA} 16 more needed"), *starts(4), SUCCEEDED],
}


def moments(name: str) -> Iterator[tuple[str, ObservedRun]]:
    """After each change of a recording, every run that is there: its name, and all that belongs to it."""
    there: dict[str, Object] = {}
    for change in recordings.read(name):
        uid = change.obj["metadata"]["uid"]
        there.pop(uid, None)
        if change.type != "DELETED":
            there[uid] = change.obj
        for run in [obj for obj in there.values() if obj["kind"] in RUNS]:
            yield objects.name(run), seen_of(run, there.values())


def seen_of(run: Object, there: Any) -> ObservedRun:
    workloads = [
        obj
        for obj in there
        if obj["kind"] == "Workload" and objects.label(obj, "kueue.x-k8s.io/job-uid") == objects.uid(run)
    ]
    cluster = objects.status(run).get("rayClusterName") or "-"
    pods = [
        obj
        for obj in there
        if obj["kind"] == "Pod"
        and (
            objects.label(obj, "jobset.sigs.k8s.io/jobset-uid") == objects.uid(run)
            or objects.label(obj, "ray.io/cluster") == cluster
        )
    ]
    return ObservedRun(run, workloads[0] if workloads else None, tuple(pods))


def sequence(name: str, run: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for of, seen in moments(name):
        state, reason = states.classify(seen)
        if of == run and (state.value, reason) != (found[-1] if found else None):
            found.append((state.value, reason))
    return found


def test_every_recorded_run_is_in_the_table() -> None:
    there = {(name, run) for name in recordings.names() for run, _ in moments(name)}
    assert there == set(SEQUENCES)


@pytest.mark.parametrize(("name", "run"), SEQUENCES, ids=lambda value: str(value))
def test_the_states_of_a_recorded_run(name: str, run: str) -> None:
    assert sequence(name, run) == SEQUENCES[name, run]


@pytest.mark.parametrize("name", sorted({name for name, _ in SEQUENCES}))
def test_the_place_of_a_condition_means_nothing(name: str) -> None:
    shuffle = random.Random(0).shuffle
    for _, seen in moments(name):
        before = states.classify(seen), states.restarts(seen), states.started(seen), states.ended(seen)
        for obj in (seen.obj, seen.workload, *(seen.pods or ())):
            if obj is not None and (conditions := objects.status(obj).get("conditions")):
                shuffle(conditions)
        after = states.classify(seen), states.restarts(seen), states.started(seen), states.ended(seen)
        assert after == before


# Restarts, started and ended at the end of the recording. The first starts are those of the pods, or of Ray's job.
ENDS: list[tuple[str, str, int, str | None, str | None]] = [
    ("three-then-one-and-two", "slices-3", 0, "2026-11-21T06:10:54Z", "2026-11-21T06:11:14Z"),
    ("rayjob-succeeds", "good", 0, "2026-11-21T06:24:38Z", "2026-11-21T06:24:47Z"),
    ("rayjob-fails", "bad", 0, "2026-11-21T06:25:17Z", "2026-11-21T06:25:20Z"),
    ("rayjob-head-killed", "headless", 1, "2026-11-21T06:26:05Z", "2026-11-21T06:27:48Z"),
    # After a restart it is its admission: nobody keeps when its pods were first ready.
    ("run-fails-after-restarts", "fails", 1, "2026-11-21T06:15:13Z", "2026-11-21T06:15:28Z"),
    ("preempted-by-priority", "low-3", 0, "2026-11-21T06:12:34Z", None),
    ("quota-in-use-by-others", "waiting-2", 0, None, None),
    ("admitted-but-no-nodes", "no-nodes", 0, None, None),
]


@pytest.mark.parametrize(("name", "run", "restarts", "started", "ended"), ENDS, ids=lambda value: str(value))
def test_what_the_end_of_a_recording_says(
    name: str, run: str, restarts: int, started: str | None, ended: str | None
) -> None:
    seen = [seen for of, seen in moments(name) if of == run][-1]
    assert (states.restarts(seen), states.started(seen), states.ended(seen)) == (restarts, started, ended)


def test_a_lost_head_is_a_restart_from_its_loss_on() -> None:
    told = [(states.restarts(seen), states.classify(seen)) for _, seen in moments("rayjob-head-killed")]
    assert [count for count, _ in itertools.groupby(told, key=lambda one: one[0])] == [0, 1]
    assert next(state for count, state in told if count) == HEAD_LOST


def test_a_head_that_did_not_answer_for_a_while_is_no_restart() -> None:
    seen = [seen for of, seen in moments("rayjob-succeeds") if of == "good" and states.classify(seen) == RUNNING][-1]
    seen = copy.deepcopy(seen)
    conditions = seen.obj["status"]["rayClusterStatus"]["conditions"]
    [head] = [condition for condition in conditions if condition["type"] == "HeadPodReady"]
    began = datetime.fromisoformat(seen.obj["status"]["rayJobInfo"]["startTime"])
    for seconds, count in ((10, 1), (45, 0), (600, 0)):  # until it was ready again
        head["lastTransitionTime"] = (began + timedelta(seconds=seconds)).isoformat()
        assert states.restarts(seen) == count


def test_a_start_is_told_from_the_first_to_the_last_moment_of_a_run_that_fails() -> None:
    told = [states.started(seen) for _, seen in moments("run-fails-after-restarts")]
    first = next(number for number, start in enumerate(told) if start)
    assert all(told[first:])


def test_the_end_of_a_failed_ray_jobs_log_is_kept() -> None:
    seen = [seen for _, seen in moments("rayjob-fails")][-1]
    assert states.log_tail(seen)[-1:] == ["about to fail"]


# --- cancelled, without a Workload --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "kueue", "state"),
    [("", True, "cancelled"), ("multislice", False, "cancelled"), ("multislice", True, "queued")],
    ids=["no-queue", "no-kueue", "kueue-is-slow"],
)
def test_a_suspended_run_without_a_workload_is_cancelled_where_nobody_would_start_it(
    queue: str, kueue: bool, state: str
) -> None:
    metadata = {
        "name": "demo",
        "labels": {keys.KUEUE_QUEUE: queue},
        "annotations": {keys.CANCELLED: "2026-01-02T03:04:05Z"},
    }
    seen = ObservedRun({"kind": "JobSet", "metadata": metadata, "spec": {"suspend": True}}, None, (), kueue)
    assert states.classify(seen)[0] == state
    assert seen.cancelled_and_idle
    if state == "queued":
        assert states.classify(seen)[1] == "It is being cancelled."
