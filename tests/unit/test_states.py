"""The state of a run at every moment of the recordings of the real Kueue, JobSet and KubeRay."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from launcher.backends.kubernetes import states
from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.kubernetes.states import ObservedRun
from launcher.k8s import label_keys, objects
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.pods import Pod
from tests.cluster import recordings
from tests.unit import recorded

Object = dict[str, Any]

RUNS = ("RayJob", "JobSet")
NO_WORKLOAD = ("queued", "Kueue has not created its Workload yet.")
NOT_PROCESSED = ("queued", "Kueue has not processed it yet.")
ADMITTED = ("admitted", "Its pods are about to be created.")
NO_PODS = ("admitted", "It has no pods yet.")
RUNNING = ("running", "")
SUCCEEDED = ("succeeded", "")
FLAVOR = "couldn't assign flavors to pod set"
QUOTA = f"{FLAVOR} slice: insufficient unused quota for google.com/tpu in flavor v5e-2x4,"
PREEMPTING = " Pending the preemption of 1 workload(s)"
RAY_UP = ("starting", "Ray is up; the job is about to start.")
RAY_STARTS = [
    NO_WORKLOAD,
    NOT_PROCESSED,
    ADMITTED,
    NO_PODS,
    *(("starting", f"{n} of 3 pods are ready.") for n in range(4)),
    RAY_UP,
]
HEAD_LOST = ("restarting", "Its Ray head is lost and is being replaced.")


def starts(hosts: int) -> list[tuple[str, str]]:
    """Return the states during admission and start of a run whose pods became ready one by one."""
    ready = [("starting", f"{number} of {hosts} pods are ready.") for number in range(hosts)]
    return [ADMITTED, NO_PODS, *ready, RUNNING]


def queued(message: str) -> list[tuple[str, str]]:
    return [NO_WORKLOAD, NOT_PROCESSED, ("queued", message)]


# All states of each run in order, with their reasons; a state that does not change is listed once.
SEQUENCES: dict[tuple[str, str], list[tuple[str, str]]] = {
    ("admission-check-inactive", "checked"): queued("ClusterQueue tpu is inactive"),
    ("admission-check-pending", "checked"): queued("Its quota is reserved; it waits for the admission check budget."),
    ("admitted-but-no-nodes", "no-nodes"): [
        NO_WORKLOAD,
        NOT_PROCESSED,
        ADMITTED,
        NO_PODS,
        ("starting", "0 of 4 pods are ready."),
    ],
    ("borrowing-then-reclaimed", "borrows-3"): [
        NO_WORKLOAD,
        NOT_PROCESSED,
        *starts(6),
        ("preempted", "Preempted to accommodate a workload due to reclamation within the cohort"),
        *starts(6),
    ],
    ("borrowing-then-reclaimed", "owner-2"): [*queued(f"{QUOTA} 16 more needed.{PREEMPTING}"), *starts(4), SUCCEEDED],
    ("cancelled-while-running", "cancelled"): [NO_WORKLOAD, NOT_PROCESSED, *starts(2)],
    ("head-not-covered-by-quota", "head-uncovered"): queued(
        f"{FLAVOR} head: resource memory unavailable in ClusterQueue"
    ),
    ("larger-than-quota", "slices-4"): queued(
        f"{FLAVOR} slice: insufficient quota for google.com/tpu in flavor v5e-2x4, previously considered podsets "
        "requests (0) + current podset request (32) > maximum capacity (24)"
    ),
    ("no-such-queue", "lost"): queued("LocalQueue nosuch doesn't exist"),
    ("preempted-by-priority", "low-3"): [
        NO_WORKLOAD,
        NOT_PROCESSED,
        *starts(6),
        ("preempted", "Preempted to accommodate a workload due to prioritization in the ClusterQueue"),
        *starts(6),
    ],
    ("preempted-by-priority", "high-1"): [*queued(f"{QUOTA} 8 more needed.{PREEMPTING}"), *starts(2), SUCCEEDED],
    ("queue-held", "held"): queued("ClusterQueue tpu is inactive"),
    ("quota-in-use-by-others", "first-2"): [NO_WORKLOAD, NOT_PROCESSED, *starts(4)],
    ("quota-in-use-by-others", "waiting-2"): queued(f"{QUOTA} 8 more needed"),
    # Its pods are on simulated nodes, which do not run Ray.
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
        NO_WORKLOAD,
        NOT_PROCESSED,
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
    ("three-then-one-and-two", "slices-3"): [NO_WORKLOAD, NOT_PROCESSED, *starts(6), SUCCEEDED],
    ("three-then-one-and-two", "slices-1"): [*queued(f"{QUOTA} 8 more needed"), *starts(2), SUCCEEDED],
    ("three-then-one-and-two", "slices-2"): [*queued(f"{QUOTA} 16 more needed"), *starts(4), SUCCEEDED],
}


def moments(name: str) -> Iterator[tuple[str, ObservedRun]]:
    """Yield the name and the objects of every existing run after each change of a recording."""
    existing: dict[str, Object] = {}
    for change in recordings.read(name):
        uid = change.obj["metadata"]["uid"]
        existing.pop(uid, None)
        if change.type != "DELETED":
            existing[uid] = change.obj
        for run in [obj for obj in existing.values() if obj["kind"] in RUNS]:
            yield objects.name(run), observed_run(run, existing.values())


def observed_run(run: Object, existing: Any) -> ObservedRun:
    workloads = [
        obj
        for obj in existing
        if obj["kind"] == "Workload" and objects.label(obj, "kueue.x-k8s.io/job-uid") == objects.uid(run)
    ]
    cluster = objects.status(run).get("rayClusterName") or "-"
    pods = [
        obj
        for obj in existing
        if obj["kind"] == "Pod"
        and (
            objects.label(obj, "jobset.sigs.k8s.io/jobset-uid") == objects.uid(run)
            or objects.label(obj, "ray.io/cluster") == cluster
        )
    ]
    return ObservedRun(RunObject.parse(run), Workload(workloads[0]) if workloads else None, tuple(map(Pod, pods)))


def sequence(name: str, run: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for of, observed in moments(name):
        state, reason = states.classify(observed)
        if of == run and (state.value, reason) != (found[-1] if found else None):
            found.append((state.value, reason))
    return found


def test_every_recorded_run_is_in_the_table() -> None:
    existing = {(name, run) for name in recordings.names() for run, _ in moments(name)}
    assert existing == set(SEQUENCES)


@pytest.mark.parametrize(("name", "run"), SEQUENCES, ids=lambda value: str(value))
def test_the_states_of_a_recorded_run(name: str, run: str) -> None:
    assert sequence(name, run) == SEQUENCES[name, run]


@pytest.mark.parametrize("name", sorted({name for name, _ in SEQUENCES}))
def test_the_order_of_conditions_does_not_matter(name: str) -> None:
    shuffle = random.Random(0).shuffle
    for _, observed in moments(name):
        before = states.classify(observed), states.restarts(observed), states.started(observed), states.ended(observed)
        parsed = [*(observed.pods or ()), *([observed.workload] if observed.workload else [])]
        for obj in (observed.run.raw, *(each.raw for each in parsed)):
            if conditions := objects.status(obj).get("conditions"):
                shuffle(conditions)
        observed = ObservedRun(
            RunObject.parse(observed.run.raw),
            Workload(observed.workload.raw) if observed.workload else None,
            tuple(Pod(pod.raw) for pod in observed.pods or ()),
        )
        after = states.classify(observed), states.restarts(observed), states.started(observed), states.ended(observed)
        assert after == before


# Restarts, start and end at the end of the recording. Without a restart, the start is that of the pods or the Ray job.
ENDS: list[tuple[str, str, int, str | None, str | None]] = [
    ("three-then-one-and-two", "slices-3", 0, "2026-11-21T06:10:54Z", "2026-11-21T06:11:14Z"),
    ("rayjob-succeeds", "good", 0, "2026-11-21T06:24:38Z", "2026-11-21T06:24:47Z"),
    ("rayjob-fails", "bad", 0, "2026-11-21T06:25:17Z", "2026-11-21T06:25:20Z"),
    ("rayjob-head-killed", "headless", 1, "2026-11-21T06:26:05Z", "2026-11-21T06:27:48Z"),
    # After a restart, the start is the admission: no object records when the pods were first ready.
    ("run-fails-after-restarts", "fails", 1, "2026-11-21T06:15:13Z", "2026-11-21T06:15:28Z"),
    ("preempted-by-priority", "low-3", 0, "2026-11-21T06:12:34Z", None),
    ("quota-in-use-by-others", "waiting-2", 0, None, None),
    ("admitted-but-no-nodes", "no-nodes", 0, None, None),
]


@pytest.mark.parametrize(("name", "run", "restarts", "started", "ended"), ENDS, ids=lambda value: str(value))
def test_the_end_of_a_recording(name: str, run: str, restarts: int, started: str | None, ended: str | None) -> None:
    observed = [observed for of, observed in moments(name) if of == run][-1]
    assert (states.restarts(observed), states.started(observed), states.ended(observed)) == (restarts, started, ended)


def test_a_lost_head_is_a_restart_from_its_loss_on() -> None:
    restarts_and_states = [
        (states.restarts(observed), states.classify(observed)) for _, observed in moments("rayjob-head-killed")
    ]
    assert [count for count, _ in itertools.groupby(restarts_and_states, key=lambda one: one[0])] == [0, 1]
    assert next(state for count, state in restarts_and_states if count) == HEAD_LOST


def test_a_head_that_did_not_answer_for_a_while_is_not_a_restart() -> None:
    observed = [
        observed for of, observed in moments("rayjob-succeeds") if of == "good" and states.classify(observed) == RUNNING
    ][-1]
    observed = copy.deepcopy(observed)
    conditions = observed.run.raw["status"]["rayClusterStatus"]["conditions"]
    [head] = [condition for condition in conditions if condition["type"] == "HeadPodReady"]
    began = datetime.fromisoformat(observed.run.raw["status"]["rayJobInfo"]["startTime"])
    for seconds, count in ((10, 1), (45, 0), (600, 0)):  # the seconds until the head was ready again
        head["lastTransitionTime"] = (began + timedelta(seconds=seconds)).isoformat()
        assert states.restarts(ObservedRun(RunObject.parse(observed.run.raw))) == count


def test_a_failed_run_always_has_a_start_after_its_first() -> None:
    starts_seen = [states.started(observed) for _, observed in moments("run-fails-after-restarts")]
    first = next(number for number, start in enumerate(starts_seen) if start)
    assert all(starts_seen[first:])


def test_the_end_of_a_failed_ray_jobs_log_is_kept() -> None:
    observed = [observed for _, observed in moments("rayjob-fails")][-1]
    assert states.log_tail(observed)[-1:] == ["about to fail"]


# --- cancelled, without a Workload --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "kueue", "state"),
    [("", True, "cancelled"), ("multislice", False, "cancelled"), ("multislice", True, "queued")],
    ids=["no-queue", "no-kueue", "kueue-is-slow"],
)
def test_a_suspended_run_without_a_workload_is_cancelled_if_nothing_would_start_it(
    queue: str, kueue: bool, state: str
) -> None:
    metadata = {
        "name": "demo",
        "labels": {label_keys.KUEUE_QUEUE: queue},
        "annotations": {label_keys.CANCELLED: "2026-01-02T03:04:05Z"},
    }
    observed = ObservedRun(
        RunObject.parse({"kind": "JobSet", "metadata": metadata, "spec": {"suspend": True}}), None, (), kueue
    )
    assert states.classify(observed)[0] == state
    assert observed.cancelled_and_idle
    if state == "queued":
        assert states.classify(observed)[1] == "It is being cancelled."


# --- preempted ----------------------------------------------------------------------------------------------------

RESTART = "applying RestartJobSetAndIgnoreMaxRestarts failure policy action (first failed job: low-3-slice-0)"


def preempted(seconds: float, *, restarts: int, failures: int = 0, again: bool = False) -> ObservedRun:
    """Return the run that Kueue preempted in a recording, with what JobSet writes if its pods are a trainer's.

    The pods of the recording are simulated: they end at once. Those of a trainer write a checkpoint and exit with 3,
    so that JobSet restarts the run by the rule `preempted` of charts/run (pkg/controllers/failure_policy.go).
    """
    cluster = recorded.at("preempted-by-priority", seconds)
    run = cluster.find("JobSet", "low-3")
    run["status"] |= {"restarts": restarts} | ({"restartsCountTowardsMax": failures} if failures else {})
    if again:
        run["status"]["conditions"].append(
            {"type": "RestartingJobSet", "status": "True", "reason": "FailurePolicy_preempted", "message": RESTART}
        )
    return observed_run(run, cluster.objects)


def test_a_preemption_is_not_a_restart_after_a_failure() -> None:
    assert [states.preemptions(preempted(seconds, restarts=0)) for seconds in (5, 11, 26)] == [0, 1, 1]
    trainer = preempted(26, restarts=1)
    assert (states.restarts(trainer), states.preemptions(trainer)) == (0, 1)
    assert states.classify(trainer)[0] == "running"
    assert states.started(trainer) == "2026-11-21T06:12:34Z", "the start is that of the pods after the preemption"


def test_preemptions_and_failures_are_counted_apart() -> None:
    both = preempted(26, restarts=5, failures=2)
    assert (states.restarts(both), states.preemptions(both)) == (2, 3)


@pytest.mark.parametrize(
    ("restarted", "counted", "failures", "preemptions"),
    [
        ([2, 1], [2, 1], 3, 1),  # the one by Kueue
        ([0, 3], [], 0, 3),
        ([1, 4], [0, 1], 1, 3),
        ([2, 2], None, 0, 2),  # Kueue preempted both slices twice, and each job restarted
    ],
)
def test_restarts_of_single_slices_count(
    restarted: list[int], counted: list[int] | None, failures: int, preemptions: int
) -> None:
    """JobSet counts them by job (getJobRestarts in pkg/controllers/failure_policy.go)."""
    run = preempted(26, restarts=0)
    (slices,) = run.run.raw["status"]["replicatedJobsStatus"]
    slices |= {"jobRestarts": restarted} | ({} if counted is None else {"jobRestartsCountTowardsMax": counted})
    assert (states.restarts(run), states.preemptions(run)) == (failures, preemptions)


def test_restarts_of_the_run_and_of_its_slices_add_up() -> None:
    run = preempted(26, restarts=3, failures=2)
    (slices,) = run.run.raw["status"]["replicatedJobsStatus"]
    slices |= {"jobRestarts": [1, 3], "jobRestartsCountTowardsMax": [1, 0]}
    assert (states.restarts(run), states.preemptions(run)) == (3, 4)


def test_a_run_that_starts_after_a_preemption_has_not_failed() -> None:
    assert states.classify(preempted(23.5, restarts=1, again=True)) == (
        "restarting",
        "It was preempted, and its pods are created again.",
    )


def test_pods_that_were_replaced_on_another_host_have_run_since_the_admission() -> None:
    run = preempted(26, restarts=2)
    assert run.workload is not None
    for condition in run.workload.raw["status"]["conditions"]:
        if condition["type"] == "PodsReady":
            condition["reason"] = "Recovered"
    assert states.started(run) == "2026-11-21T06:12:31Z"
