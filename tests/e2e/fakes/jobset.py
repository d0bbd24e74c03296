"""A fake JobSet controller: creates Jobs, restarts them and ends JobSets. Only for tests of the suite; see __init__.py.

The real Job controller runs the Jobs.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.fake_controllers import Conditions, has_ended, is_owned, is_true, suspend

_KIND = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
_JOB = {"apiVersion": "batch/v1", "kind": "Job"}
_QUEUE = "kueue.x-k8s.io/queue-name"
_LABEL = "jobset.sigs.k8s.io"
_COUNTED = "jobRestartsCountTowardsMax"


class JobSets:
    """`step` does the next action for each JobSet."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._begun: set[str] = set()  # uids of JobSets that Kueue has suspended once

    def step(self) -> None:
        sets = self.api.items("/apis/jobset.x-k8s.io/v1alpha2/jobsets")
        jobs = self.api.items("/apis/batch/v1/jobs") if sets else []
        for found in sets:
            job_set = {**_KIND, **found}
            uid = found["metadata"]["uid"]
            with contextlib.suppress(ApiError):  # deleted or changed in the meantime
                if "deletionTimestamp" in found["metadata"] or has_ended(job_set):
                    continue
                if found["spec"].get("suspend"):
                    self._begun.add(uid)
                    suspend(self.api, job_set)
                elif uid in self._begun or _QUEUE not in found["metadata"].get("labels", {}):
                    self._run(job_set, [{**_JOB, **job} for job in jobs if is_owned(job, {uid})])

    def _run(self, job_set: Object, jobs: list[Object]) -> None:
        restarts = int(job_set.get("status", {}).get("restarts", 0))
        job_restarts = _job_restarts(job_set, "jobRestarts")
        marks = {
            made["metadata"]["name"]: made["metadata"]["labels"] for made in _jobs(job_set, restarts, job_restarts)
        }
        current = [job for job in jobs if marks[job["metadata"]["name"]].items() <= job["metadata"]["labels"].items()]
        older = [job for job in jobs if job not in current]
        for job in older:
            self.api.delete(path_of(job))
        if older:
            return
        if failed := [job for job in current if is_true(job, "Failed")]:
            self._failed(job_set, failed, restarts)
            return
        existing = {job["metadata"]["name"] for job in current}
        for made in _jobs(job_set, restarts, job_restarts):
            if made["metadata"]["name"] not in existing:
                self.api.create(made)
        for job in current:
            if job["spec"].get("suspend"):
                self.api.merge(path_of(job), {"spec": {"suspend": False}})
        conditions = Conditions(job_set)
        status: dict[str, Any] = {"restarts": restarts}
        if conditions.status("Suspended") == "True":
            conditions.set("Suspended", "False", "ResumeJobs", "jobset is resumed")
        if existing and all(is_true(job, "Complete") for job in current):
            conditions.set("Completed", "True", "AllJobsCompleted", "jobset completed successfully")
            status["terminalState"] = "Completed"
        ready = sum(
            job.get("status", {}).get("ready", 0) >= job["spec"]["parallelism"]
            for job in current
            if not is_true(job, "Complete")
        )
        names = [job["name"] for job in job_set["spec"]["replicatedJobs"]]
        counts = {
            "ready": ready,
            "active": len([job for job in current if job.get("status", {}).get("active")]),
            "succeeded": len([job for job in current if is_true(job, "Complete")]),
            "failed": 0,
            "suspended": 0,
        }
        kept = {key: _job_restarts(job_set, key) for key in ("jobRestarts", _COUNTED)}
        status["replicatedJobsStatus"] = [{"name": names[0], **counts, **kept}]
        if conditions.all:
            status["conditions"] = conditions.all
        if any(job_set.get("status", {}).get(key) != value for key, value in status.items()):
            self.api.merge(f"{path_of(job_set)}/status", {"status": status})

    def _failed(self, job_set: Object, failed: list[Object], restarts: int) -> None:
        """Apply the failure policy to the failed Jobs once, as upstream's executeFailurePolicy with its feature gate
        RestartJob."""
        action, job = _action(job_set["spec"].get("failurePolicy", {}), failed)
        status = job_set.get("status", {})
        counted = int(status.get("restartsCountTowardsMax", 0))
        counts = not action.endswith("AndIgnoreMaxRestarts")
        most = job_set["spec"].get("failurePolicy", {}).get("maxRestarts", 0)
        over = counts and counted + sum(_job_restarts(job_set, _COUNTED)) >= most
        if action == "FailJobSet" or over:
            reason = "ReachedMaxRestarts" if over else "FailJobSetFailurePolicyAction"
            what = "jobset failed due to reaching max number of restarts" if over else f"applying {action} action"
            conditions = Conditions(job_set)
            conditions.set("Failed", "True", reason, f"{what} (first failed job: {job['metadata']['name']})")
            now: Object = {"conditions": conditions.all, "terminalState": "Failed"}
        elif action.startswith("RestartJobSet"):
            now = {"restarts": restarts + 1, "restartsCountTowardsMax": counted + counts}
        else:
            index = int(job["metadata"]["labels"][f"{_LABEL}/job-index"])
            kept = {key: _job_restarts(job_set, key) for key in ("jobRestarts", _COUNTED)}
            kept["jobRestarts"][index] += 1
            kept[_COUNTED][index] += counts
            now = {"replicatedJobsStatus": [{**status["replicatedJobsStatus"][0], **kept}]}
        self.api.merge(f"{path_of(job_set)}/status", {"status": now})


def _action(policy: Object, failed: list[Object]) -> tuple[str, Object]:
    """The action of the first rule that matches a failed Job, and this Job; else a restart that counts."""
    ends = [next(c for c in job["status"]["conditions"] if c["type"] == "Failed") for job in failed]
    for rule in policy.get("rules", []):
        reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
        for job, end in zip(failed, ends, strict=True):
            matches = not patterns or any(re.search(pattern, end["message"]) for pattern in patterns)
            if matches and (not reasons or end["reason"] in reasons):
                return str(rule["action"]), job
    return "RestartJobSet", failed[0]


def _job_restarts(job_set: Object, key: str) -> list[int]:
    """How often each Job of the only replicated job was restarted alone."""
    (replicated,) = job_set["spec"]["replicatedJobs"]
    now = (job_set.get("status", {}).get("replicatedJobsStatus") or [{}])[0]
    return list(now.get(key) or [0] * replicated["replicas"])


def _jobs(job_set: Object, restarts: int, job_restarts: list[int]) -> list[Object]:
    metadata = job_set["metadata"]
    made = []
    for replicated in job_set["spec"]["replicatedJobs"]:
        for index in range(replicated["replicas"]):
            marks = {
                f"{_LABEL}/jobset-name": metadata["name"],
                f"{_LABEL}/jobset-uid": metadata["uid"],
                f"{_LABEL}/replicatedjob-name": replicated["name"],
                f"{_LABEL}/job-index": str(index),
                f"{_LABEL}/restart-attempt": str(restarts),
                f"{_LABEL}/job-restart-attempt": str(job_restarts[index]),
            }
            spec = dict(replicated["template"]["spec"])
            template = dict(spec["template"])
            given = template.get("metadata", {})
            template["metadata"] = {
                "labels": {**given.get("labels", {}), **marks},
                "annotations": {**given.get("annotations", {}), **marks},
            }
            owner = {**_KIND, "name": metadata["name"], "uid": metadata["uid"], "controller": True}
            made.append(
                {
                    **_JOB,
                    "metadata": {
                        "name": f"{metadata['name']}-{replicated['name']}-{index}",
                        "namespace": metadata["namespace"],
                        "labels": marks,
                        "annotations": marks,
                        "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
                    },
                    "spec": {**spec, "suspend": False, "template": template},
                }
            )
    return made
