"""Reads a training run's log: the losses by step, and the starts of the loop. Imports neither launcher nor trainer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

_METRICS, _EVENT = "SLIPWAY_METRICS ", "SLIPWAY_EVENT "


@dataclass
class Log:
    """losses: all losses that were printed for a step, in order (a repeated step has several); evaluations: the same
    for held-out losses; starts: the first step of each start of the loop."""

    losses: dict[int, list[float]] = field(default_factory=dict)
    evaluations: dict[int, list[float]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def last_step(self) -> int:
        """The last step, or -1 before the first."""
        return max(self.losses, default=-1)

    def before_start(self, number: int) -> int:
        """The last step that was printed before start `number` of the loop, counted from 0; -1 if there is none."""
        return self._before[number] if number < len(self._before) else -1

    _before: list[int] = field(default_factory=list)


def read(text: str) -> Log:
    """Parse a log. A repeated line, as after a reconnect, counts once. A truncated line is ignored."""
    log, seen, last = Log(), set[str](), -1
    for line in text.splitlines():
        for prefix in (_METRICS, _EVENT):
            at = line.find(prefix)
            entry = _parsed(line[at + len(prefix) :]) if at >= 0 else None
            if entry is None or line[at:] in seen:
                continue
            seen.add(line[at:])
            if prefix == _METRICS and "loss" in entry:
                last = int(entry["step"])
                log.losses.setdefault(last, []).append(entry["loss"])
            elif prefix == _METRICS and "eval_loss" in entry:
                log.evaluations.setdefault(int(entry["step"]), []).append(entry["eval_loss"])
            elif entry.get("event") == "loop_started":
                log.starts.append(int(entry["step"]))
                log._before.append(last)
            elif entry.get("event") in ("worker_failed", "driver_failed", "error"):
                log.failures.append(str(entry.get("message", "")))
    return log


def lost(log: Log) -> set[int]:
    """Steps that were done but are not in the log: a pod's last lines can be lost with it, and the next start resumes
    after them."""
    return {
        step
        for number, start in enumerate(log.starts)
        for step in range(log.before_start(number) + 1, start)
        if step not in log.losses
    }


def differences(one: Log, other: Log, relative: float = 0.0) -> list[str]:
    """A sentence for each step whose losses differ by more than the fraction `relative`, between or within the logs."""
    found = []
    unseen = lost(one) | lost(other)
    for step in sorted({*one.losses, *other.losses}):
        values = [*one.losses.get(step, ()), *other.losses.get(step, ())]
        if step in unseen:
            continue
        if step not in one.losses or step not in other.losses:
            found.append(f"step {step} is in one of the logs only")
        elif max(values) - min(values) > relative * abs(max(values)):
            found.append(f"step {step} has the losses {', '.join(map(str, dict.fromkeys(values)))}")
    return found


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
