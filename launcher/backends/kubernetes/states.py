"""Derive the state of a run on a cluster from its object, its Kueue Workload and its pods, for every kind.

Pure. Conditions are looked up by type; their order has no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from launcher.backends.base import BEING_CANCELLED, State
from launcher.backends.kubernetes.run_object import RunObject
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import Condition, parse_time
from launcher.k8s.pods import Pod

_NO_WORKLOAD = "Kueue has not created its Workload yet."
# A new head becomes ready up to 15 s after its job has started (the readiness probe of charts/common). A head that
# only did not answer for a while is not ready for at least 45 s.
_READY_AFTER_START = timedelta(seconds=30)
PREEMPTED = "It was preempted, and its pods are created again."
# In the message of a restart by the rule `preempted` of charts/run, which does not count as a failure.
_IGNORED = "RestartJobSetAndIgnoreMaxRestarts"
# KubeRay stores the end of the driver's log in the message of a failed job.
_LOG = "last available logs"


@dataclass(frozen=True, eq=False)
class ObservedRun:
    """A snapshot of a run with its Workload and pods. `pods` is None if they were not read.

    `kueue` is whether Kueue is installed in the cluster.
    """

    run: RunObject
    workload: Workload | None = None
    pods: Sequence[Pod] | None = None
    kueue: bool = True

    @property
    def ray(self) -> bool:
        return self.run.ray

    @property
    def queued(self) -> bool:
        """Whether Kueue decides when the run starts."""
        return bool(self.run.queue)

    @property
    def active(self) -> bool:
        """Whether Kueue may start the run. An inactive Workload is stopped, and stays stopped."""
        return self.workload is None or self.workload.active

    @property
    def stays_suspended(self) -> bool:
        """Whether the run stays suspended once suspended. Kueue resumes a run for which it creates a Workload."""
        if self.workload is None:
            return not self.queued or not self.kueue
        return not self.active

    @property
    def cancelled_and_idle(self) -> bool:
        """Whether the run was cancelled and holds nothing, so it can be deleted. Until deletion, Kueue may start it."""
        return bool(self.run.cancelled_at) and self.holds_nothing

    @property
    def pods_wanted(self) -> int:
        """The number of pods that Kueue has admitted, else the number of existing pods."""
        return (self.workload.pods_admitted if self.workload else 0) or len(self.pods or ())

    @property
    def holds_nothing(self) -> bool:
        """Whether the run has no pods and no quota."""
        if self.pods:
            return False
        if not self.run.suspended or (self.ray and self.run.ray_job.cluster):
            return False
        return self.workload is None or not self.workload.has_quota

    def workload_condition(self, kind: str) -> Condition:
        """Return the condition of its Workload of that type."""
        return Condition() if self.workload is None else self.workload.condition(kind)


def classify(seen: ObservedRun) -> tuple[State, str]:
    """Return the run's state and the reason for it, or "" if there is none."""
    state, reason = _finished(seen) or _stopped(seen) or _under_way(seen)
    if not state.ended:
        if seen.run.deleting:
            return state, "It is being deleted."
        if seen.run.cancelled_at:
            return state, BEING_CANCELLED
    return state, reason


def restarts(seen: ObservedRun) -> int:
    """Return how often the run, or a slice of it, was restarted after a failure. Those by Ray Train are in the log.

    KubeRay reports only the last head that a RayJob lost, so several lost heads count as one.
    """
    if not seen.ray:
        return seen.run.job_set_failures
    job = seen.run.ray_job
    return max(0, job.failed - (job.deployment == "Failed")) + _head_replaced(seen)


def preemptions(seen: ObservedRun) -> int:
    """Return how often the run was preempted: by Kueue, or because one of its hosts had to end.

    If Kueue preempts a trainer, JobSet restarts it, too. The two counts overlap, so the result is the larger one.
    """
    by_kueue = 0 if seen.workload is None else seen.workload.preemptions
    return max(by_kueue, 0 if seen.ray else seen.run.job_set_preemptions)


def started(seen: ObservedRun) -> str | None:
    """Return the time at which the Ray job started, or all pods of the JobSet were ready (RFC 3339).

    The latter is not available for a JobSet that was restarted; the time at which Kueue admitted it is used instead.
    """
    if seen.ray:
        return seen.run.ray_job.started or None
    ready, admitted = seen.workload_condition("PodsReady"), seen.workload_condition("Admitted")
    if not ready or not admitted.is_true:
        return None
    if ready.is_true and ready.reason != "Recovered" and not restarts(seen):
        return ready.since or None
    # The pods were ready before.
    been_ready = (
        restarts(seen)
        or ready.reason in ("Recovered", "WaitForRecovery")
        or seen.workload_condition("Finished").is_true
    )
    return (admitted.since or None) if been_ready else None


def ended(seen: ObservedRun) -> str | None:
    """Return the time at which the run ended (RFC 3339); None while it is active."""
    if seen.ray and seen.run.ray_job.ended:
        return seen.run.ray_job.ended
    for kind in ("Completed", "Failed"):
        if not seen.ray and (end := seen.run.condition(kind)).is_true:
            return end.since
    return seen.run.cancelled_at or None


def log_tail(seen: ObservedRun) -> list[str]:
    """Return the end of a failed Ray job's log, which KubeRay keeps in the object without the pods; else []."""
    message = seen.run.ray_job.message
    return message.rstrip("\n").split("\n")[1:] if seen.ray and _LOG in message.split("\n", 1)[0] else []


def _finished(seen: ObservedRun) -> tuple[State, str] | None:
    """Return the final state that the object's own controller reports, or None."""
    if not seen.ray:
        if seen.run.condition("Completed").is_true:
            return State.SUCCEEDED, ""
        failed = seen.run.condition("Failed")
        return (State.FAILED, _job_set_failure(seen, failed.message)) if failed.is_true else None
    deployment, job = seen.run.ray_job.deployment, seen.run.ray_job.job
    if deployment == "Complete" and job == "SUCCEEDED":
        return State.SUCCEEDED, ""
    if deployment in ("Complete", "Failed", "ValidationFailed"):
        if job == "STOPPED":
            return State.FAILED, "Its Ray job was stopped, but not by launcher cancel."
        return State.FAILED, _ray_failure(seen)
    return None


def _stopped(seen: ObservedRun) -> tuple[State, str] | None:
    """Return the state of a run that its user or Kueue stopped before its end, or None."""
    if seen.run.cancelled_at and seen.holds_nothing and seen.stays_suspended:
        return State.CANCELLED, seen.run.cancelled_for or "Cancelled."
    if seen.queued and not seen.active and seen.holds_nothing:
        evicted = seen.workload_condition("Evicted")
        # "Deactivated" is a request by a user; with an underlying cause ("DeactivatedDueTo…"), Kueue stopped the run.
        if evicted.reason.startswith("DeactivatedDueTo"):
            return State.FAILED, f"Kueue has deactivated it: {evicted.message}"
        return State.CANCELLED, "Its Workload was deactivated, but not by launcher cancel."
    return None


def _under_way(seen: ObservedRun) -> tuple[State, str]:
    if seen.queued:
        waiting = _waiting(seen)
        if waiting is not None:
            return waiting
    elif seen.run.suspended:
        return State.QUEUED, "It is suspended, and no queue will start it."
    return _ray_job(seen) if seen.ray else _job_set(seen)


def _head_replaced(seen: ObservedRun) -> bool:
    """Return whether a Ray job lost its head and was, or is about to be, submitted again to a new one.

    KubeRay creates the new head in the same Ray cluster and does not count it. It is detected from two times: the
    head became ready again after all pods had been ready once, and the job started at about that time.
    """
    job = seen.run.ray_job
    head, whole = job.condition("HeadPodReady"), job.condition("RayClusterProvisioned")
    if not head or not whole.is_true or not job.started:
        return False
    if not head.is_true:
        return job.deployment == "Running"
    if not head.since or not whole.since:
        return False
    ready = parse_time(head.since)
    return ready > parse_time(whole.since) and parse_time(job.started) > ready - _READY_AFTER_START


def _waiting(seen: ObservedRun) -> tuple[State, str] | None:
    """Return the state that Kueue reports; None once the run is admitted and no longer suspended."""
    workload = seen.workload
    if workload is None:
        # A run that is not suspended has been admitted, even if its Workload was not read.
        return (State.QUEUED, _NO_WORKLOAD) if seen.run.suspended or not seen.run.raw.get("status") else None
    evicted = workload.evicted
    if evicted.is_true:
        return (State.PREEMPTED if evicted.reason == "Preempted" else State.QUEUED), eviction(evicted)
    if workload.is_true("Admitted"):
        return None if not seen.run.suspended else (State.ADMITTED, "Its pods are about to be created.")
    if workload.has_quota:
        checks = [check.name for check in workload.checks]
        of = f" {', '.join(checks)}" if checks else "s of its queue"
        return State.QUEUED, f"Its quota is reserved; it waits for the admission check{of}."
    return State.QUEUED, workload.reserved.message or "Kueue has not processed it yet."


def _job_set(seen: ObservedRun) -> tuple[State, str]:
    again = seen.run.condition("RestartingJobSet")
    if again.is_true:
        return State.RESTARTING, PREEMPTED if _IGNORED in again.message else _first_failed(again.message)
    ready = seen.workload_condition("PodsReady")
    if ready.is_true:
        return State.RUNNING, ""
    if ready.reason == "WaitForRecovery":
        return State.RESTARTING, "A pod has failed and is being replaced."
    if seen.pods is None and not seen.queued:
        return State.STARTING, ""
    return _by_pods(seen)


def _ray_job(seen: ObservedRun) -> tuple[State, str]:
    now = seen.run.ray_job
    deployment, job = now.deployment, now.job
    if deployment == "Retrying":
        return State.RESTARTING, "KubeRay restarts it with a new Ray cluster."
    if deployment == "Running":
        if now.condition("HeadPodReady").is_false and job in ("RUNNING", "Failure"):
            return State.RESTARTING, "Its Ray head is lost and is being replaced."
        if job == "Failure":  # KubeRay could not reach the dashboard
            state = State.RESTARTING if now.started else State.STARTING
            return state, f"Its Ray head does not answer: {now.message}"
        if job == "RUNNING":
            return State.RUNNING, ""
        return State.STARTING, "Ray is up; the job is about to start."
    return _by_pods(seen)


def _by_pods(seen: ObservedRun) -> tuple[State, str]:
    """Return the state of an admitted run that is not running yet, from the number of its pods that are ready."""
    if seen.pods is None:
        return State.STARTING, "Its pods are starting."
    if not seen.pods:
        return State.ADMITTED, "It has no pods yet."
    ready = sum(pod.ready for pod in seen.pods)
    if ready >= seen.pods_wanted and not seen.ray:
        return State.RUNNING, ""
    return State.STARTING, f"{ready:,} of {seen.pods_wanted:,} pods are ready."


def _job_set_failure(seen: ObservedRun, message: str) -> str:
    """Return why a JobSet failed.

    The trainer's own sentence is the termination message of its container, available while the pod exists.
    """
    for pod in seen.pods or []:
        for container in pod.containers:
            ended = container.ended
            if ended and ended.exit_code and (line := last_error(ended.message.splitlines())):
                return line
    if "max number of restarts" in message:
        return "It failed again, and run.maxRestarts allows no more restarts."
    return message


def _first_failed(message: str) -> str:
    """Return a sentence with the job that JobSet names in brackets; else the message."""
    match = re.search(r"\(first failed job: ([^)]+)\)", message)
    return f"The job {match[1]} has failed." if match else message


def eviction(evicted: Condition) -> str:
    """Return Kueue's message without the UIDs and paths of the preemptor, which launcher explain shows."""
    message = evicted.message or evicted.reason
    return re.sub(r" \(UID: [^)]*\)", "", message).partition("; preemptor path:")[0]


def _ray_failure(seen: ObservedRun) -> str:
    job = seen.run.ray_job
    return last_error(log_tail(seen)) or job.message.split(", last available logs")[0] or job.reason


def last_error(lines: Sequence[str]) -> str:
    """Return the last "Error: …" line that the trainer wrote, without the prefix; "" if there is none."""
    for line in reversed(lines):
        if match := re.search(r"(?:^|\) )Error: (.+)", line):
            return match[1].strip()
    return ""
