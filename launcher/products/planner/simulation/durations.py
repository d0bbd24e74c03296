"""How long a run takes: from its measured steps, else a forecast, else its deadline, else an assumption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from launcher import formatting
from launcher.backends.base import RunStatus
from launcher.backends.kubernetes.run_object import RunObject
from launcher.config.maxtext.keys import AUTO
from launcher.k8s.kueue.workloads import Workload
from launcher.products.planner.forecast import known_forecast

DEFAULT_ASSUMPTION = 4 * 3600.0
"""Seconds that a run takes if nothing is known about it."""

LEAST = 1.0
"""Seconds that a run which runs needs at least until its end."""

OVERRUN = 0.05
"""The part of its whole time that a run still needs at least if that time is a forecast or an assumption. A run that
reaches such a time shows that it was too short; a deadline and measured steps have no such error."""

LONGEST_AUTO = 3600.0
"""Seconds between two checkpoints, at most, with train.checkpoint_period: auto.

The source is trainer/training/checkpoint_period.py."""


class Source(StrEnum):
    """The source of a duration."""

    MEASURED = "measured"
    FORECAST = "forecast"
    DEADLINE = "deadline"
    ASSUMED = "assumed"


BANDS: Mapping[Source, tuple[float, float]] = {
    # The steps' time varies little; evaluations and checkpoints come on top.
    Source.MEASURED: (0.95, 1.15),
    # The error of published forecasts (docs/reference/forecast-proof.md), and start-up, evaluations and checkpoints.
    Source.FORECAST: (0.8, 1.5),
    # A run ends at its deadline at the latest.
    Source.DEADLINE: (0.25, 1.0),
    Source.ASSUMED: (0.25, 2.0),
}
"""The factors of the shortest and of the longest duration that a band includes, by source."""


@dataclass(frozen=True, slots=True)
class Duration:
    """The seconds that a run still takes, and their source. `text` describes it, as a clause."""

    seconds: float
    source: Source
    text: str

    @property
    def shortest(self) -> float:
        return self.seconds * BANDS[self.source][0]

    @property
    def longest(self) -> float:
        return self.seconds * BANDS[self.source][1]


def time_left(
    *, status: RunStatus | None, config: Mapping[str, Any], deadline: float | None, held: float, assumed: float
) -> Duration:
    """Return how long a run still takes.

    `status` has the steps and losses of a run that runs; `config` is its run config, {} if it is not known. `deadline`
    is the limit of its time in seconds, at which it ends even if it needs longer. `held` is for how long it has had
    quota; 0 if it waits.
    """
    needed = _of_steps(status, config, held)
    if deadline and (needed is None or deadline - held < needed.seconds):
        text = f"its deadline is {formatting.duration(deadline)}"
        return Duration(max(LEAST, deadline - held), Source.DEADLINE, text)
    if needed is not None:
        return needed
    text = f"assumed to take {formatting.duration(assumed)}"
    return Duration(max(LEAST, OVERRUN * assumed, assumed - held), Source.ASSUMED, text)


def _of_steps(status: RunStatus | None, config: Mapping[str, Any], held: float) -> Duration | None:
    """Return how long the steps of a run still take; None if their time is neither measured nor forecast."""
    if status is not None and status.seconds_left is not None and status.step and status.steps:
        left = status.steps - status.step
        text = f"{left:,} of {status.steps:,} steps left, as fast as the last steps"
        return Duration(max(LEAST, status.seconds_left), Source.MEASURED, text)
    steps = _steps(config)
    speed = known_forecast.speed(config) if steps else None
    if steps and speed is not None:
        done = status.step if status is not None and status.step else None
        total = steps * speed.step_seconds
        left_seconds = total - (done * speed.step_seconds if done is not None else held)
        text = f"{steps:,} steps of {speed.step_seconds:.3g} s, as forecast"
        return Duration(max(LEAST, OVERRUN * total, left_seconds), Source.FORECAST, text)
    return None


def checkpoint_seconds(config: Mapping[str, Any], step_seconds: float | None) -> float | None:
    """Return the time between two checkpoints; None if it is not known."""
    period = (config.get("train") or {}).get("checkpoint_period")
    if period == AUTO:
        return LONGEST_AUTO
    if not step_seconds or isinstance(period, bool) or not isinstance(period, int) or not 1 <= period < 2**53:
        return None
    return period * step_seconds


def step_seconds(status: RunStatus | None, config: Mapping[str, Any]) -> float | None:
    """Return the time of a step, measured or forecast; None if it is not known."""
    if status is not None and status.seconds_left and status.steps and status.step is not None:
        left = status.steps - status.step
        if left > 0:
            return status.seconds_left / left
    speed = known_forecast.speed(config)
    return None if speed is None else speed.step_seconds


def deadline_of(obj: RunObject | None, workload: Workload) -> float | None:
    """Return the limit of a run's time in seconds: of its RayJob or JobSet, or Kueue's; None without one.

    Kueue's limit counts the time before the last eviction too; the others begin again.
    """
    spec = obj.raw.get("spec") or {} if obj is not None else {}
    limits = [spec.get("activeDeadlineSeconds")]
    for job in spec.get("replicatedJobs") or []:
        limits.append(((job.get("template") or {}).get("spec") or {}).get("activeDeadlineSeconds"))
    seconds = [float(limit) for limit in limits if isinstance(limit, int | float) and limit > 0]
    if limit := workload.spec.get("maximumExecutionTimeSeconds"):
        past = float(workload.status.get("accumulatedPastExecutionTimeSeconds") or 0)
        seconds.append(max(LEAST, float(limit) - past))
    return min(seconds, default=None)


def _steps(config: Mapping[str, Any]) -> int | None:
    if (config.get("run") or {}).get("command"):
        return None
    steps = (config.get("train") or {}).get("steps")
    return steps if isinstance(steps, int) and not isinstance(steps, bool) and steps > 0 else None
