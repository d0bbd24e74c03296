"""The kinds of run: what `run.kind` may be."""

from __future__ import annotations

from enum import StrEnum


class RunKind(StrEnum):
    """A kind of run, by its value in `run.kind` and in JSON."""

    LOCAL = "local"
    RAY_CLUSTER = "ray-cluster"
    RAY_JOB = "ray-job"
    JOB_SET = "job-set"

    @property
    def has_object(self) -> bool:
        """Whether each run is a separate Kubernetes object with its own pods, admitted by Kueue."""
        return self in (RunKind.RAY_JOB, RunKind.JOB_SET)
