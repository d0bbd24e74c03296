"""A fake trainer: prints log lines with invented losses, and its checkpoints are step numbers. Only for tests of the
suite; see __init__.py. It does not train; the loss is a function of the step."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.cluster.api import Object

STEP_SECONDS = 0.1
Print = Callable[[tuple[str, str, str], list[str]], None]


@dataclass
class _Run:
    """The state of a run across its pods. checkpoint: the step at which the next start begins."""

    checkpoint: int = 0
    step: int = 0
    hosts: frozenset[str] = frozenset()  # uids of the pods that currently train
    attempt: str = ""
    begun: float = 0.0
    started: bool = False
    stopped: bool = False  # since the last start, a host received SIGTERM
    killed: bool = False  # since the last start, a host was killed: no checkpoint is written any more
    restarts: bool = False  # a process was killed, and starts again in its pod
    ended: dict[str, tuple[int, str]] = field(default_factory=dict)  # by attempt
    lines: list[str] = field(default_factory=list)  # what the storage keeps of the output


class Trainer:
    """Trains step by step: the kubelet calls `train` repeatedly with each run's running pods.

    write_log: writes lines to the log of (namespace, pod, container).
    """

    def __init__(self, write_log: Print) -> None:
        self._write_log = write_log
        self._runs: dict[tuple[str, str], _Run] = {}
        self.notifications: list[tuple[str, Object]] = []
        """The namespace and the body of each notification."""

    def stored(self, namespace: str, run: str) -> list[str]:
        """The output of the run, and its record, as the pod of tests/e2e/test_records.py prints them."""
        found = self._runs.get((namespace, run), _Run())
        return [*found.lines, "RECORD " + json.dumps({"version": 1, "state": "succeeded", "steps": found.step})]

    def ended(self, namespace: str, run: str, uid: str) -> tuple[int, str] | None:
        """The exit code and the last message of this attempt's training; None if it has not ended."""
        found = self._runs.get((namespace, run))
        return found.ended.get(uid) if found else None

    def terminate(self, namespace: str, run: str) -> None:
        """One of the run's hosts received SIGTERM: write another checkpoint."""
        found = self._runs.get((namespace, run))
        if found and not found.killed:
            found.checkpoint = max(found.checkpoint, found.step)
            found.stopped = True

    def kill(self, namespace: str, run: str) -> None:
        """One of the run's hosts was killed."""
        found = self._runs.get((namespace, run))
        if found and not found.stopped:
            found.killed = True

    def kill_process(self, namespace: str, run: str) -> None:
        """The process that trains was killed in a pod of the run, which stays."""
        self._runs[namespace, run].restarts = True

    def train(self, pods: list[Object], attempt: str, hosts: int, now: float) -> bool:
        """Continue the training of the run with these running pods, if all pods run. Returns whether it has ended.

        attempt: the id of this start of all pods, for `ended`; hosts: the number of pods that the training needs;
        now: seconds on any clock.
        """
        metadata = pods[0]["metadata"]
        run = self._runs.setdefault((metadata["namespace"], metadata["labels"]["slipway.dev/run"]), _Run())
        if attempt in run.ended:
            return True
        uids = frozenset(pod["metadata"]["uid"] for pod in pods)
        key = _log_of(pods)
        if run.restarts and run.begun and key is not None:
            self._event(key, "worker_failed", message="worker 1 was killed by SIGKILL")
            run.restarts, run.begun = False, 0.0
        if uids != run.hosts and run.begun:
            # Under Ray the driver keeps running; in a JobSet all pods are new.
            if key is not None and attempt == run.attempt and "ray.io/cluster" in metadata["labels"]:
                self._event(key, "worker_failed", message="a worker went away")
            run.begun = 0.0
        run.hosts, run.attempt = uids, attempt
        if len(pods) < hosts or key is None:
            return False
        config = _config(pods)
        steps, period = int(config["train"]["steps"]), int(config["train"]["checkpoint_period"])
        if not run.begun:
            run.begun, run.step = now, run.checkpoint
            self._event(key, "loop_started", step=run.step, steps=steps, devices=hosts)
            if run.started and run.stopped:
                self._notify(metadata, "preempted", "was preempted.")
            elif run.started:
                self._notify(metadata, "failed", "failed, and may restart.")
            else:
                self._notify(metadata, "started", "started training.")
            run.started, run.stopped, run.killed = True, False, False
        upto = min(steps, run.step + max(1, int((now - run.begun) / STEP_SECONDS)))
        run.begun = now
        lines = []
        begin = 0.693 if config["tuning"]["method"] == "dpo" else 10  # the model is the reference, or guesses
        for step in range(run.step, upto):
            loss = begin * (1 - 0.8 * step / steps)
            entry = {"step": step, "loss": loss, "step_seconds": STEP_SECONDS, "time": _now()}
            lines.append("SLIPWAY_METRICS " + json.dumps(entry))
            if step % period == 0 or step == steps - 1:
                lines.append(f"checkpoint after step {step + 1}/{steps}  training paused for 0.01 s")
            if (step + 1) % period == 0:
                run.checkpoint = step + 1
        self._write_log(key, lines)
        run.lines += lines
        run.step = upto
        if upto == steps:
            self._notify(metadata, "ended", "has succeeded.")
            run.ended[attempt] = (0, "Job finished successfully.")
        return upto == steps

    def _notify(self, metadata: Object, event: str, words: str) -> None:
        run = metadata["labels"]["slipway.dev/run"]
        self.notifications.append((metadata["namespace"], {"event": event, "run": run, "text": f"Run {run} {words}"}))

    def _event(self, key: tuple[str, str, str], event: str, **more: object) -> None:
        self._write_log(key, ["SLIPWAY_EVENT " + json.dumps({"event": event, "time": _now(), **more})])


def _log_of(pods: list[Object]) -> tuple[str, str, str] | None:
    """The log of the pod that prints: the head, or the JobSet's first host."""
    for pod in pods:
        labels = pod["metadata"]["labels"]
        first = labels.get("batch.kubernetes.io/job-completion-index") == "0"
        first = first and labels.get("jobset.sigs.k8s.io/job-index") == "0"
        if labels.get("ray.io/node-type") == "head" or first:
            return pod["metadata"]["namespace"], pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
    return None


def _config(pods: list[Object]) -> Object:
    found: Object = json.loads(pods[0]["metadata"]["annotations"]["slipway.dev/run-config"])
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
