"""A run's attempts as Ray jobs: the metadata of a job, and the run's state from the job's status and log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.backends import progress, run_config
from launcher.backends.base import State
from launcher.backends.local.record import timestamp
from launcher.backends.progress import Progress
from launcher.k8s.label_keys import ATTEMPT, RUN, RUN_CONFIG
from launcher.k8s.objects import counted
from launcher.products.ray_cluster.jobs import Job, RayJobs

if TYPE_CHECKING:
    pass

_STARTING = "starting the driver, then loading and compiling the model"


@dataclass(frozen=True)
class Attempt:
    """A run's newest attempt: the job, and the Jobs API of its cluster."""

    jobs: RayJobs
    job: Job

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.job.get("metadata") or {}

    @property
    def name(self) -> str:
        return str(self.metadata[RUN])

    @property
    def attempt(self) -> int:
        return int(self.metadata[ATTEMPT])

    @property
    def id(self) -> str:
        return str(self.job["submission_id"])

    def config(self) -> dict[str, Any]:
        return run_config.parse(self.metadata.get(RUN_CONFIG) or "{}")


def newest_attempts(jobs: RayJobs) -> dict[str, Attempt]:
    """Return the newest attempt of each run in the cluster, by name. Jobs of other tools are left out."""
    newest: dict[str, Attempt] = {}
    for job in jobs.list():
        metadata = job.get("metadata") or {}
        if RUN not in metadata or counted(metadata.get(ATTEMPT)) is None or RUN_CONFIG not in metadata:
            continue
        attempt = Attempt(jobs, job)
        before = newest.get(attempt.name)
        if before is None or attempt.attempt > before.attempt:
            newest[attempt.name] = attempt
    return newest


def classify(job: Job, known: Progress) -> tuple[State, str]:
    """Return the state and reason of a run, from its job in Ray's API and the progress in its log."""
    match job["status"]:
        case "PENDING":
            return State.QUEUED, "Ray is about to start its driver"
        case "SUCCEEDED":
            return State.SUCCEEDED, ""
        case "STOPPED":
            return State.CANCELLED, "Cancelled."
        case "FAILED":
            return State.FAILED, known.reason or _failure(str(job.get("message") or ""))
    if known.failing:
        return State.RESTARTING, known.failure
    return (State.RUNNING, known.doing) if known.loops else (State.STARTING, known.doing or _STARTING)


def _failure(message: str) -> str:
    """Return why a job failed, from Ray's message, which has the driver's result and then the driver's last lines."""
    if "No module named trainer" in message:
        return "The image of the Ray cluster does not contain the trainer; install the cluster with Slipway's image."
    lines = message.strip().splitlines()
    reported = progress.read(lines, steps=None, devices=1).reason
    return reported or (lines[0] if lines else "Ray does not report a cause.")


def time_of(milliseconds: object) -> str | None:
    return timestamp(int(str(milliseconds)) / 1000) if milliseconds else None
