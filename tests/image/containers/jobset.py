"""A fake of the JobSet controller and of Kubernetes' Job controller: creates a JobSet's pods, and reacts to their end.

It is a fake because both controllers need an API server and pods of a kubelet, and these containers have neither
(tests/cluster has the real Job controller, with simulated pods). The fields that the controllers add to the chart's
template are from a pod that they created (the recording three-then-one-and-two). The manifest's
podFailurePolicy and failurePolicy are applied here as upstream documents them.
"""

from __future__ import annotations

import copy
import re
import secrets
import threading
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

from tests.cluster import recordings
from tests.image.containers.pod import Pod, PodContext
from tests.trainer.runs import PATIENCE


@cache
def _recorded() -> dict[str, Any]:
    made = (change.obj for change in recordings.read("three-then-one-and-two") if change.obj["kind"] == "Pod")
    return next(pod for pod in made if "jobset.sigs.k8s.io/jobset-name" in pod["metadata"]["labels"])


class _Job:
    """The Indexed Job of one slice. A failed pod fails it, and then its other pods are deleted with their grace period.

    failure: its reason and message, None before.
    """

    def __init__(self, index: int, pods: list[Pod], rules: list[dict[str, Any]]) -> None:
        self.index, self.pods, self._rules = index, pods, rules
        self.failure: tuple[str, str] | None = None

    def step(self) -> None:
        for pod in self.pods:
            pod.check()
        failed = [pod for pod in self.pods if pod.over and pod.phase == "Failed"]
        if failed and self.failure is None:
            self.failure = self._failure(failed[0])
            for pod in self.pods:
                pod.delete()

    @property
    def over(self) -> bool:
        return all(pod.over for pod in self.pods)

    def _failure(self, pod: Pod) -> tuple[str, str]:
        """The reason and the message after a pod failed, by podFailurePolicy. All rules of the chart fail the Job."""
        code = pod.terminations[-1].exit_code if pod.terminations else 137
        (container,) = pod.manifest["spec"]["containers"]
        place = f"{pod.namespace}/{pod.name}"
        for index, rule in enumerate(self._rules):
            assert rule["action"] == "FailJob"
            if on := rule.get("onExitCodes"):
                assert on["operator"] == "In"
                if code in on["values"] and on.get("containerName", container["name"]) == container["name"]:
                    cause = f"Container {container['name']} for pod {place} failed with exit code {code}"
                    return "PodFailurePolicy", f"{cause} matching FailJob rule at index {index}"
            for on in rule.get("onPodConditions", []):
                if on["type"] == "DisruptionTarget" and pod.disrupted:
                    cause = f"Pod {place} has condition DisruptionTarget"
                    return "PodFailurePolicy", f"{cause} matching FailJob rule at index {index}"
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"


class JobSet:
    """A JobSet with one replicated Indexed Job. It runs in a thread until it has completed or failed.

    attempts: the pods that were created together: those of all slices, or of the slice that was restarted alone.
    job_restarts: how often each slice was.
    """

    def __init__(self, context: PodContext, manifest: dict[str, Any]) -> None:
        self.manifest, self._context = manifest, context
        self.name: str = manifest["metadata"]["name"]
        self.namespace: str = manifest["metadata"]["namespace"]
        (self._replicated,) = manifest["spec"]["replicatedJobs"]
        self._job: dict[str, Any] = self._replicated["template"]["spec"]
        assert self._job["completionMode"] == "Indexed"
        assert self._job["backoffLimit"] == 0
        self._jobs: list[_Job] = []
        self.attempts: list[list[Pod]] = []
        self._restarts = 0
        self.job_restarts = [0] * self._replicated["replicas"]
        self.restarts_counted = 0
        self.events: list[str] = []
        self.state = ""  # Completed or Failed
        self._stop_requested = threading.Event()
        self._over = threading.Event()
        self._error: BaseException | None = None
        context.node.at_end.callback(self.close)
        self._controller = threading.Thread(target=self._run, daemon=True)
        self._controller.start()

    def wait(self, seconds: float = PATIENCE) -> str:
        """Wait for the end. Returns Completed or Failed."""
        assert self._over.wait(seconds), f"not within {seconds} s:\n{self.diagnostics()}"
        if self._error is not None:
            raise self._error
        return self.state

    def until_started(self, attempt: int, seconds: float = PATIENCE) -> list[Pod]:
        """Wait until the pods of an attempt (counted from 1) run, and return them."""
        deadline = time.monotonic() + seconds
        while len(self.attempts) < attempt or any(pod.phase == "Pending" for pod in self.attempts[attempt - 1]):
            assert time.monotonic() < deadline, self.diagnostics()
            assert not self._over.is_set(), self.diagnostics()
            time.sleep(0.02)
        return self.attempts[attempt - 1]

    def diagnostics(self) -> str:
        pods = [pod for pods in self.attempts for pod in pods]
        logs = "\n".join(f"--- {pod.name} {pod.phase} {pod.events}\n{pod.log()[-3000:]}" for pod in pods)
        return f"{self.events}\n{logs}"

    def close(self) -> None:
        self._stop_requested.set()
        self._controller.join(60)
        pods = [pod for job in self._jobs for pod in job.pods]
        for pod in pods:
            pod.delete(grace=0)
        for pod in pods:
            pod.close()

    def _run(self) -> None:
        try:
            self.state = self._reconcile()
            self._end(self._jobs)
        except BaseException as error:  # raised by wait()
            self._error = error
        finally:
            self._over.set()

    def _reconcile(self) -> str:
        """Return how the JobSet has ended; "" if it was closed before."""
        self._jobs = self._create(range(len(self.job_restarts)))
        while not self._stop_requested.wait(0.05):
            for job in self._jobs:
                job.step()
            if all(job.over and job.failure is None for job in self._jobs):
                return "Completed"
            failed = [job for job in self._jobs if job.failure is not None and job.over]
            if failed and self._fails(failed):
                return "Failed"
        return ""

    def _fails(self, failed: list[_Job]) -> bool:
        """Apply the failure policy once, as upstream's executeFailurePolicy. Returns whether the JobSet has failed."""
        action, job = self._action(failed)
        assert job.failure is not None
        self.events += [": ".join(job.failure), action]
        if action == "FailJobSet":
            return True
        if not action.endswith("AndIgnoreMaxRestarts"):
            # Restarts of the JobSet and of single Jobs count together.
            if self.restarts_counted >= self.manifest["spec"]["failurePolicy"]["maxRestarts"]:
                return True
            self.restarts_counted += 1
        if action.startswith("RestartJobSet"):
            self._end(self._jobs)
            self._restarts += 1
            self._jobs = self._create(range(len(self._jobs)))
        else:
            assert action.startswith("RestartJob"), action
            self._end([job])
            self.job_restarts[job.index] += 1
            (self._jobs[job.index],) = self._create([job.index])
        return False

    def _create(self, indexes: Iterable[int]) -> list[_Job]:
        rules = self._job["podFailurePolicy"]["rules"]
        count = range(self._job["completions"])
        made = [_Job(index, [self._pod(index, host) for host in count], rules) for index in indexes]
        self.attempts.append([pod for job in made for pod in job.pods])
        return made

    def _end(self, jobs: Iterable[_Job]) -> None:
        """Delete the pods of these Jobs, with their grace period, and wait for their end."""
        pods = [pod for job in jobs for pod in job.pods]
        for pod in pods:
            pod.delete(grace=0 if self._stop_requested.is_set() else None)
        for pod in pods:
            pod.wait(self._job["template"]["spec"]["terminationGracePeriodSeconds"] + 60)

    def _action(self, failed: list[_Job]) -> tuple[str, _Job]:
        """The action of the first rule that matches a failed Job, and this Job; or else a restart that counts."""
        for rule in self.manifest["spec"]["failurePolicy"].get("rules", []):
            reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
            for job in failed:
                reason, message = job.failure or ("", "")
                if reasons and reason not in reasons:
                    continue
                if patterns and not any(re.search(each, message) for each in patterns):
                    continue
                return str(rule["action"]), job
        return "RestartJobSet", failed[0]

    def _pod(self, index: int, host: int) -> Pod:
        made = _recorded()
        name = f"{self.name}-{self._replicated['name']}-{index}"
        job_set = {
            "jobset-name": self.name,
            "replicatedjob-name": self._replicated["name"],
            "replicatedjob-replicas": str(len(self.job_restarts)),
            "global-replicas": str(len(self.job_restarts)),
            "group-replicas": str(len(self.job_restarts)),
            "group-name": "default",
            "job-index": str(index),
            "job-global-index": str(index),
            "job-group-index": str(index),
            "restart-attempt": str(self._restarts),
        }
        ours = {
            **{f"jobset.sigs.k8s.io/{key}": value for key, value in job_set.items()},
            "batch.kubernetes.io/job-completion-index": str(host),
            "batch.kubernetes.io/job-name": name,
            "job-name": name,
        }
        pod: dict[str, Any] = copy.deepcopy(self._job["template"])
        for kind in ("labels", "annotations"):
            # The keys are those of the recorded pod, without ids, which no container reads.
            added = {key: ours[key] for key in made["metadata"][kind] if key in ours}
            pod["metadata"][kind] = {**pod["metadata"].get(kind, {}), **added}
        pod["metadata"] |= {"name": f"{name}-{host}-{secrets.token_hex(3)[:5]}", "namespace": self.namespace}
        (container,) = pod["spec"]["containers"]
        container["env"] = [*container.get("env", []), *made["spec"]["containers"][0]["env"]]
        pod["spec"] |= {"hostname": f"{name}-{host}", "subdomain": self.name}
        return Pod(self._context, pod)
