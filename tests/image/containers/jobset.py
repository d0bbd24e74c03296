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
from functools import cache
from typing import Any

from tests.cluster import recordings
from tests.image.containers.pod import Pod, PodContext
from tests.trainer.runs import PATIENCE


@cache
def _recorded() -> dict[str, Any]:
    made = (change.obj for change in recordings.read("three-then-one-and-two") if change.obj["kind"] == "Pod")
    return next(pod for pod in made if "jobset.sigs.k8s.io/jobset-name" in pod["metadata"]["labels"])


class JobSet:
    """A JobSet with one Indexed Job and one replica. It runs in a thread until it has completed or failed."""

    def __init__(self, context: PodContext, manifest: dict[str, Any]) -> None:
        self.manifest, self._context = manifest, context
        self.name: str = manifest["metadata"]["name"]
        self.namespace: str = manifest["metadata"]["namespace"]
        (self._replicated,) = manifest["spec"]["replicatedJobs"]
        self._job: dict[str, Any] = self._replicated["template"]["spec"]
        assert self._replicated["replicas"] == 1
        assert self._job["completionMode"] == "Indexed"
        assert self._job["backoffLimit"] == 0
        self.pods: list[Pod] = []
        self.attempts: list[list[Pod]] = []
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
        for pod in self.pods:
            pod.delete(grace=0)
        for pod in self.pods:
            pod.close()

    def _run(self) -> None:
        try:
            while not self._stop_requested.is_set():
                failure = self._one_job()
                if failure is None or self._stop_requested.is_set():
                    self.state = "Completed"
                    return
                reason, message = failure
                self.events.append(f"{reason}: {message}")
                action = self._action(reason, message)
                self.events.append(action)
                if action == "FailJobSet":
                    self.state = "Failed"
                    return
                if action != "RestartJobSetAndIgnoreMaxRestarts":
                    if self.restarts_counted >= self.manifest["spec"]["failurePolicy"]["maxRestarts"]:
                        self.state = "Failed"
                        return
                    self.restarts_counted += 1
        except BaseException as error:  # raised by wait()
            self._error = error
        finally:
            self._over.set()

    def _one_job(self) -> tuple[str, str] | None:
        """Run all pods once. Returns None if all succeeded, or the failed Job's reason and message.

        A failed Job deletes its other pods, with their grace period.
        """
        self.pods = [self._pod(index) for index in range(self._job["completions"])]
        self.attempts.append(self.pods)
        try:
            while not self._stop_requested.wait(0.05):
                for pod in self.pods:
                    pod.check()
                failed = [pod for pod in self.pods if pod.over and pod.phase == "Failed"]
                if failed:
                    return self._job_failure(failed[0])
                if all(pod.over for pod in self.pods):
                    return None
            return None
        finally:
            for pod in self.pods:
                pod.delete(grace=0 if self._stop_requested.is_set() else None)
            for pod in self.pods:
                pod.wait(self._job["template"]["spec"]["terminationGracePeriodSeconds"] + 60)

    def _job_failure(self, pod: Pod) -> tuple[str, str]:
        """The Job's failure reason and message after a pod failed, by its podFailurePolicy.

        All rules of the chart fail the Job.
        """
        code = pod.terminations[-1].exit_code if pod.terminations else 137
        (container,) = pod.manifest["spec"]["containers"]
        place = f"{pod.namespace}/{pod.name}"
        for index, rule in enumerate(self._job["podFailurePolicy"]["rules"]):
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

    def _action(self, reason: str, message: str) -> str:
        """The JobSet's action after its Job failed: of the first matching rule, or else a restart that counts."""
        for rule in self.manifest["spec"]["failurePolicy"].get("rules", []):
            reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
            if reasons and reason not in reasons:
                continue
            if patterns and not any(re.search(each, message) for each in patterns):
                continue
            return str(rule["action"])
        return "RestartJobSet"

    def _pod(self, index: int) -> Pod:
        made = _recorded()
        name = f"{self.name}-{self._replicated['name']}-0"
        job_set = {
            "jobset-name": self.name,
            "replicatedjob-name": self._replicated["name"],
            "replicatedjob-replicas": "1",
            "global-replicas": "1",
            "group-replicas": "1",
            "group-name": "default",
            "job-index": "0",
            "job-global-index": "0",
            "job-group-index": "0",
            "restart-attempt": str(len(self.attempts)),
        }
        ours = {
            **{f"jobset.sigs.k8s.io/{key}": value for key, value in job_set.items()},
            "batch.kubernetes.io/job-completion-index": str(index),
            "batch.kubernetes.io/job-name": name,
            "job-name": name,
        }
        pod: dict[str, Any] = copy.deepcopy(self._job["template"])
        for kind in ("labels", "annotations"):
            # The keys are those of the recorded pod, without ids, which no container reads.
            added = {key: ours[key] for key in made["metadata"][kind] if key in ours}
            pod["metadata"][kind] = {**pod["metadata"].get(kind, {}), **added}
        pod["metadata"] |= {"name": f"{name}-{index}-{secrets.token_hex(3)[:5]}", "namespace": self.namespace}
        (container,) = pod["spec"]["containers"]
        container["env"] = [*container.get("env", []), *made["spec"]["containers"][0]["env"]]
        pod["spec"] |= {"hostname": f"{name}-{index}", "subdomain": self.name}
        return Pod(self._context, pod)
