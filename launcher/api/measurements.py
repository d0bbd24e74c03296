"""Metrics of runs."""

from __future__ import annotations

from typing import Any

from launcher.backends.lookup import find
from launcher.k8s.target import DEFAULT_TARGET, Target


def metrics(name: str, *, target: Target = DEFAULT_TARGET) -> list[dict[str, Any]]:
    """Return the run's metrics, ordered by step.

    There is an entry for each step (step, loss, step_seconds, tokens_per_second_per_device, …, time), and for each
    held-out evaluation (step, eval_loss, time). For a step that was repeated after a restart, the later entry is used.
    On a cluster, the metrics are read from the run's log: raises LauncherError if the log was deleted with its pods.
    """
    backend, status = find(name, target)
    entries = backend.metrics(status.name)
    latest = {(entry["step"], "eval_loss" in entry): entry for entry in entries if isinstance(entry.get("step"), int)}
    return [latest[key] for key in sorted(latest)]
