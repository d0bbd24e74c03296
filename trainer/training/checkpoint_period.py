"""The steps between two checkpoints if train.checkpoint_period is `auto`: chosen from their cost and the failures.

A checkpoint pauses the training, and a failure repeats the steps since the last one. The time between two checkpoints
that loses least to both is sqrt(2 C M), with the seconds C of a pause and the mean time M between two failures of the
run (J. W. Young, Communications of the ACM 17, 1974; J. T. Daly, Future Generation Computer Systems 22, 2006). The
first checkpoint of each start measures C. The first host chooses, and all hosts receive the same number of steps.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer import metrics
from trainer.config import RunConfig
from trainer.maxtext_keys import AUTO
from trainer.telemetry.goodput import productive_seconds

HOST_HOURS = 6300.0
"""Mean hours between two failures of a host, if run.hostFailureHours is not set.

Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs, which are 2,048 hosts (The Llama 3 Herd of Models,
arXiv 2407.21783, section 3.3.4): 6,335 hours."""
FIRST_STEPS = 10
"""Steps until the first checkpoint of a start, which measures the cost. A run that fails often makes progress, too."""
MOST_PAUSED = 0.1
"""The part of the time that checkpoints may take, however often the run fails."""
LONGEST_SECONDS = 3600.0
"""The longest time between two checkpoints. Shorter for a run whose notify.checkpointSeconds would warn of it."""
_KEPT = 0.2
"""A choice remains until the next one differs from it by more than this part."""


@dataclass(frozen=True)
class Choice:
    """`steps` between two checkpoints, and their `seconds`, chosen from the pause and the mean time between failures.

    `bound` is the reason that the seconds are not sqrt(2 C M); "" if they are.
    """

    steps: int
    seconds: float
    bound: str


def choose(*, pause: float, step: float, mean_time: float, longest: float, run_steps: int) -> Choice:
    """Return the period for a pause, a step and a mean time between two failures of the run, all in seconds.

    A run of `run_steps` steps has at least one checkpoint before its last one.
    """
    seconds, bound = math.sqrt(2 * pause * mean_time), ""
    if seconds < pause / MOST_PAUSED:
        seconds, bound = pause / MOST_PAUSED, f"pauses take at most {MOST_PAUSED:.0%} of the time"
    if seconds > longest:
        seconds, bound = longest, f"the longest time is {_duration(longest)}"
    steps = max(1, round(seconds / step))
    if steps > (most := max(1, run_steps // 2)):
        steps, bound = most, "a run has a checkpoint in its middle"
    return Choice(steps, steps * step, bound)


def mean_time_between_failures(*, host_hours: float, hosts: int, failures: int, trained: float) -> float:
    """Return the seconds between two failures of a run of `hosts`, after `failures` in `trained` seconds of training.

    The expected failures of one mean time and the run's own are added: a new run has the published rate, and the longer
    a run trains, the more its own failures count.
    """
    return (host_hours * 3600 / hosts + trained) / (1 + failures)


def failures_of(events: Iterable[Mapping[str, Any]]) -> int:
    """Return how many starts of the training in events.jsonl followed a failure, not a stop with a checkpoint."""
    count, started, stopped = 0, False, False
    for event in events:
        if event.get("event") == "loop_started":
            count += started and not stopped
            started, stopped = True, False
        elif event.get("event") in ("preempted", "stopped"):
            stopped = True
    return count


class AutoPeriod:
    """Decides on one host after which steps to write a checkpoint, the same ones on all hosts.

    `share` receives a key and, on the first host, the value, and returns the value of the first host. `report` receives
    a sentence with each new choice, on the first host.
    """

    def __init__(
        self, config: RunConfig, *, first: bool, share: Callable[[str, str], str], report: Callable[[str], None]
    ) -> None:
        self._config, self._first, self._share, self._report = config, first, share, report
        self._run_steps = 0
        self._steps, self._chosen = FIRST_STEPS, False
        self._last = -1
        self._mean_time = 0.0
        self._durations: deque[float] = deque(maxlen=50)
        self._pauses: deque[float] = deque(maxlen=5)
        self._at: float | None = None

    def starts(self, step: int, steps: int) -> None:
        """Call before the first step of this start, `step`. `steps` are those of the run."""
        self._last, self._run_steps = step - 1, steps
        self._steps = min(FIRST_STEPS, max(1, steps // 2))
        if not self._first:
            return
        folder, failures, trained = self._config.folder, 0, 0.0
        try:
            failures = failures_of(metrics.read(folder / "events.jsonl"))
            trained = productive_seconds(metrics.read(folder / "metrics.jsonl"))
        except (OSError, ValueError, KeyError, TypeError):  # a history that cannot be read: the published rate alone
            pass
        hours = float(self._config.tree["run"].get("hostFailureHours") or HOST_HOURS)
        self._mean_time = mean_time_between_failures(
            host_hours=hours, hosts=self._config.hosts, failures=failures, trained=trained
        )

    def due(self, step: int) -> bool:
        """Return whether to write a checkpoint after this step. Call once for each step."""
        at = time.perf_counter()
        if self._at is not None:
            self._durations.append(at - self._at)
        self._at = at
        return step - self._last >= self._steps

    def saved(self, step: int, pause: float) -> None:
        """Choose again, after the checkpoint of a step that paused the training for `pause` seconds on this host."""
        self._last, self._at = step, None
        self._pauses.append(pause)
        if self._first:
            choice = self._choose()
            if choice is not None and (not self._chosen or abs(choice.steps / self._steps - 1) > _KEPT):
                self._steps, self._chosen = choice.steps, True
                self._report(self._sentence(choice))
        self._steps = int(self._share(f"slipway/checkpoint-period/{step}", str(self._steps)))

    def _choose(self) -> Choice | None:
        if not self._durations:
            return None
        warned = float((self._config.tree.get("notify") or {}).get("checkpointSeconds") or 0)
        return choose(
            pause=statistics.median(self._pauses),
            step=statistics.median(self._durations),
            mean_time=self._mean_time,
            longest=min(LONGEST_SECONDS, warned / 2) if warned else LONGEST_SECONDS,
            run_steps=self._run_steps,
        )

    def _sentence(self, choice: Choice) -> str:
        hosts = self._config.hosts
        return (
            f"A checkpoint every {choice.steps:,} step{'s' if choice.steps != 1 else ''}, "
            f"{_duration(choice.seconds)}: it pauses the training for {statistics.median(self._pauses):.2f} s, and "
            f"{f'{hosts} hosts' if hosts > 1 else 'the host'} should fail once in {_duration(self._mean_time)}"
            f"{f'; {choice.bound}' if choice.bound else ''}."
        )


def applies(config: RunConfig) -> bool:
    """Return whether the run chooses its period."""
    return config.train.get("checkpoint_period") == AUTO and config.train.get("enable_checkpointing") is not False


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size or (unit != "days" and seconds >= size):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
