"""Start runs as jobs of a long-lived Ray cluster, and their next attempts."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launcher.backends import resubmit
from launcher.backends.base import Preview, Submission, WithoutAlternatives
from launcher.config.checks.problems import ERROR, WARNING, Problem
from launcher.errors import LauncherError
from launcher.k8s.client import Unreachable
from launcher.k8s.label_keys import ATTEMPT, DIGEST, RUN, RUN_CONFIG, SUBMISSION, SWEEP, SWEEP_VALUES, TEAM
from launcher.k8s.objects import Object
from launcher.products.ray_cluster import clusters as ray_clusters
from launcher.products.ray_cluster import fit
from launcher.products.ray_cluster.attempts import Attempt
from launcher.products.ray_cluster.backend import RayClusterBackend
from launcher.products.ray_cluster.jobs import RayJobs

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan


_RACES = 20


ENTRYPOINT = f"python -m trainer --job-config {RUN_CONFIG}"


# Ray passes a job's metadata to its driver in one environment variable, which Linux limits to 128 KiB.
_METADATA_LIMIT = 120_000


class RayClusterSubmitter(RayClusterBackend, WithoutAlternatives):
    """Starts jobs of long-lived Ray clusters; see base.Submitter for the contract of each method."""

    def prepare(self, plans: Sequence[LaunchPlan]) -> None:
        """Do nothing: jobs share only their cluster."""

    def problems(self, plan: LaunchPlan) -> Sequence[Problem]:
        try:
            target, _, note = self._target(plan)
            fit.check_fit(target, plan.config)
        except LauncherError as error:
            return [Problem("live.cluster", ERROR, " ".join([error.message, error.hint]), None, None, "run.cluster")]
        return [Problem("live.cluster", WARNING, note.strip(), None, None, "run.cluster")] if note else []

    def preview(self, plan: LaunchPlan, *, accept_changes: bool) -> Preview:
        target, jobs, note = self._target(plan)
        metadata_of(plan, 1)
        earlier = self._find(plan.name, first=jobs)
        if earlier is None:
            fit.check_fit(target, plan.config)
            return Preview(plan.config, f'Would start the run "{plan.name}" in {jobs.head.description}.{note}')
        verdict = self._decide(earlier, plan, accept_changes)
        if verdict is not None:
            return Preview(plan.config, f"{verdict} Nothing would be started.")
        fit.check_fit(target, plan.config)
        return Preview(plan.config, resubmit.would_resume(plan.name, earlier.attempt + 1) + note)

    def submit(self, plan: LaunchPlan, *, accept_changes: bool) -> Submission:
        target, jobs, note = self._target(plan)
        for _ in range(_RACES):
            earlier = self._find(plan.name, first=jobs)
            attempt, text = 1, f'The run "{plan.name}" was submitted to {jobs.head.description}.'
            if earlier is not None:
                verdict = self._decide(earlier, plan, accept_changes)
                if verdict is not None:
                    return Submission(self._status(earlier), verdict, created=False)
                attempt = earlier.attempt + 1
                text = resubmit.resumed(plan.name, self._status(earlier).state, attempt, checkpoint=None)
            fit.check_fit(target, plan.config)
            made = self._create(jobs, plan, attempt, earlier)
            if made is not None:
                return Submission(self._status(made), text + note, created=True)
        raise LauncherError(
            f'The run "{plan.name}" cannot be submitted: another user creates and deletes it at the same time.',
            "Use another name (--name), or try again later.",
        )

    def _target(self, plan: LaunchPlan) -> tuple[Object, RayJobs, str]:
        """Return the plan's cluster, its Jobs API, and a note: a sentence after a space, or "".

        Raises LauncherError if the cluster is not ready to accept a job.
        """
        target = ray_clusters.named(self.cluster, str(plan.config["run"]["cluster"]))
        fit.check_ready(target, self.cli_args)
        jobs = self._jobs(target, named=True)
        runs, wanted = jobs.version(), str(plan.config["image"]["rayVersion"])
        if runs == wanted:
            return target, jobs, ""
        return target, jobs, f" Note: the cluster has Ray {runs}, but image.rayVersion is {wanted}."

    def _create(self, jobs: RayJobs, plan: LaunchPlan, attempt: int, before: Attempt | None) -> Attempt | None:
        """Start the attempt after `before`. Return None if another client has already started it."""
        submission, metadata = f"{plan.name}-{attempt}", metadata_of(plan, attempt)
        if before is not None:  # a run of a sweep stays in it, even if submitted alone
            kept = {key: before.metadata[key] for key in (SWEEP, SWEEP_VALUES) if key in before.metadata}
            metadata = {**kept, **metadata}
        try:
            if not jobs.submit(submission, ENTRYPOINT, metadata):
                return None
        except Unreachable:
            # The submit may have succeeded with only the response lost. An id is unique, so a lookup is sufficient.
            job = jobs.get(submission)
            if job is None or (job.get("metadata") or {}).get(SUBMISSION) != metadata[SUBMISSION]:
                raise
        job = jobs.get(submission)
        return None if job is None else Attempt(jobs, job)

    def _decide(self, earlier: Attempt, plan: LaunchPlan, accept_changes: bool) -> str | None:
        resubmit.check_sweep(plan, earlier.metadata.get(SWEEP, ""), where=self.cli_args)
        state, where = self._status(earlier).state, self.cli_args
        return resubmit.decide(
            plan.name, state, earlier.config(), plan.config, accept_changes=accept_changes, where=where
        )


def metadata_of(plan: LaunchPlan, attempt: int) -> dict[str, str]:
    """Return the job's metadata. Raises LauncherError if the run config is too large for it."""
    text = json.dumps(plan.config, ensure_ascii=False, separators=(",", ":"))
    labels = {
        RUN: plan.name,
        ATTEMPT: str(attempt),
        TEAM: str((plan.config.get("team") or {}).get("name") or ""),
        DIGEST: hashlib.sha256(text.encode()).hexdigest()[:16],
        SUBMISSION: uuid.uuid4().hex,
        RUN_CONFIG: text,
    }
    if plan.member is not None:
        labels[SWEEP] = plan.member.sweep
        labels[SWEEP_VALUES] = json.dumps(dict(plan.member.values), ensure_ascii=False)
    if len(json.dumps({"metadata": labels})) > _METADATA_LIMIT:
        raise LauncherError(
            "The run config is too large: a Ray job accepts at most 128 KiB with quotes escaped; name "
            "files by folders and globs."
        )
    return labels
