"""A stand-in for the trainer: lines of a log with made-up losses, and checkpoints that are a number. Tests the suite
alone; see __init__.py. It trains nothing; a step's loss is a function of the step."""

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
    """A run's life across its pods. checkpoint: the step that it would begin at."""

    checkpoint: int = 0
    step: int = 0
    hosts: frozenset[str] = frozenset()  # uids of the pods that train now
    attempt: str = ""
    begun: float = 0.0
    ended: dict[str, tuple[int, str]] = field(default_factory=dict)  # by attempt


class Trainer:
    """Given each run's running pods again and again, it trains; `say` writes to a log: of namespace, pod, container."""

    def __init__(self, say: Print) -> None:
        self._say = say
        self._runs: dict[tuple[str, str], _Run] = {}

    def ended(self, namespace: str, run: str, uid: str) -> tuple[int, str] | None:
        """Exit code and last word of the training of this attempt."""
        found = self._runs.get((namespace, run))
        return found.ended.get(uid) if found else None

    def told_to_end(self, namespace: str, run: str) -> None:
        """One of its hosts got SIGTERM: one more checkpoint."""
        if found := self._runs.get((namespace, run)):
            found.checkpoint = max(found.checkpoint, found.step)

    def train(self, pods: list[Object], attempt: str, hosts: int, now: float) -> bool:
        """A bit of the training of the run that these running pods are, once all are there; whether it has ended.

        attempt: what `ended` is asked by, another one for each start of all pods; hosts: how many there have to be;
        now: seconds, on any clock.
        """
        metadata = pods[0]["metadata"]
        run = self._runs.setdefault((metadata["namespace"], metadata["labels"]["slipway.dev/run"]), _Run())
        if attempt in run.ended:
            return True
        uids = frozenset(pod["metadata"]["uid"] for pod in pods)
        key = _log_of(pods)
        if uids != run.hosts and run.begun:
            # Under Ray the driver lives on; in a JobSet all pods are new ones.
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
        upto = min(steps, run.step + max(1, int((now - run.begun) / STEP_SECONDS)))
        run.begun = now
        lines = []
        for step in range(run.step, upto):
            entry = {"step": step, "loss": 10 - 8 * step / steps, "step_seconds": STEP_SECONDS, "time": _now()}
            lines.append("SLIPWAY_METRICS " + json.dumps(entry))
            if (step + 1) % period == 0:
                run.checkpoint = step + 1
        self._say(key, lines)
        run.step = upto
        if upto == steps:
            run.ended[attempt] = (0, "Job finished successfully.")
        return upto == steps

    def _event(self, key: tuple[str, str, str], event: str, **more: object) -> None:
        self._say(key, ["SLIPWAY_EVENT " + json.dumps({"event": event, "time": _now(), **more})])


def _log_of(pods: list[Object]) -> tuple[str, str, str] | None:
    """The pod that prints: the head, or the JobSet's first host."""
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
