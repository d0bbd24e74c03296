"""Connects the driver of a run under Ray Train with its workers, through Ray's key-value store.

The store outlives the workers, so the driver reads what a worker reported before it ended.
"""

from __future__ import annotations

import uuid

from trainer import loop


class ControlChannel:
    """Passes the result of a Ray Train run from a worker to the driver, and the driver's requests to the workers."""

    def __init__(self, name: str, *, key: str = "") -> None:
        import ray

        self.key = key or f"slipway/{name}/{ray.get_runtime_context().get_job_id()}/{uuid.uuid4().hex[:12]}"
        self.refusal: str | None = None
        self.outcome: loop.Outcome | None = None
        self.stopped_after: int | None = None
        self.stepping = False
        self.failures = 0
        self.failure = ""

    # --- for workers and the controller ---

    def refuse(self, sentence: str) -> None:
        self._put("refused", sentence)

    def finish(self, outcome: loop.Outcome) -> None:
        self._put("finished", f"{outcome.steps} {int(outcome.target_reached)}")

    def stop(self, steps: int) -> None:
        self._put("stopped", str(steps))

    def step(self) -> None:
        self._put("stepping", "1")

    def count(self, failures: int, message: str) -> None:
        self._put("failures", f"{failures} {message}")

    def asked_to_stop(self) -> bool:
        return self._get("stop") is not None

    # --- for the driver ---

    def ask_to_stop(self) -> None:
        self._put("stop", "1")

    def refresh(self) -> None:
        """Read the reported values."""
        self.refusal = self._get("refused")
        finished, stopped = self._get("finished"), self._get("stopped")
        if finished is not None:
            steps, target = finished.split()
            self.outcome = loop.Outcome(int(steps), bool(int(target)))
        self.stopped_after = int(stopped) if stopped is not None else None
        self.stepping = self._get("stepping") is not None
        failures, _, self.failure = (self._get("failures") or "0").partition(" ")
        self.failures = int(failures)

    def _get(self, what: str) -> str | None:
        from ray.experimental.internal_kv import _internal_kv_get

        text = _internal_kv_get(f"{self.key}/{what}".encode())
        return None if text is None else text.decode()

    def _put(self, what: str, text: str) -> None:
        from ray.experimental.internal_kv import _internal_kv_put

        _internal_kv_put(f"{self.key}/{what}".encode(), text.encode())
