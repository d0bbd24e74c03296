"""The progress of a run, from the lines of its log if nothing else is available, or from its metrics.jsonl.

The trainer prints each line of metrics.jsonl after METRICS_PREFIX, and each event after EVENT_PREFIX. Ray may add its
own prefix ("(RayTrainWorker pid=…, ip=…) "), so both are searched for anywhere in a line.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from launcher.backends.base import RunStatus
from launcher.json_object import json_object
from launcher.trainer_output import EVENT_PREFIX, METRICS_PREFIX, TrainerState, count, event_of

_ERROR = "Error: "
_RECENT_STEPS = 20
# The number of lines to remember: reading a log again from shortly before its end returns some lines twice.
_REMEMBERED = 8192


@dataclass(frozen=True)
class Progress:
    """The progress that the lines report. A value that they do not report (yet) is None.

    `step` is the number of finished steps. Rates are totals of all devices, over the last 20 steps and over all steps
    read. `loops` is the number of times that the training, or the command, started; `restarts` the number of times
    that it restarted. A preempted host is not a failure: `preemptions` counts those, and `restarts` does not.
    `failing` is True after a failure until the next start; `failure` is a line about the last failure. `reason` is
    the sentence that the trainer ended with, or "". `doing` is what the run does apart from training, or "".
    """

    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    loss_first: float | None = None
    eval_loss: float | None = None
    eval_loss_first: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_overall: float | None = None
    step_seconds: float | None = None
    loops: int = 0
    restarts: int = 0
    preemptions: int = 0
    failing: bool = False
    failure: str = ""
    reason: str = ""
    doing: str = ""


def read(lines: Iterable[str], *, steps: int | None, devices: int) -> Progress:
    """Return the progress that a log reports. `steps` and `devices` are the config's, used if the log lacks them."""
    reader = Reader(steps=steps, devices=devices)
    reader.feed(lines)
    return reader.progress()


def of_metrics(entries: Iterable[Mapping[str, Any]], *, devices: int) -> Progress:
    """Return the progress that lines of metrics.jsonl report."""
    reader = Reader(steps=None, devices=devices)
    for entry in entries:
        reader.add_metrics(entry)
    return reader.progress()


def apply(status: RunStatus, progress: Progress) -> RunStatus:
    """Return the status with the progress added. The state and reason do not change."""
    status = replace(
        status,
        steps=progress.steps or status.steps,
        restarts=max(status.restarts, progress.restarts),
        preemptions=max(status.preemptions, progress.preemptions),
    )
    if progress.step is None and progress.eval_loss is None:
        return status
    left = None
    if progress.step_seconds and progress.step is not None and status.steps is not None and not status.state.ended:
        left = max(0, status.steps - progress.step) * progress.step_seconds
    ended = status.state.ended
    return replace(
        status,
        step=progress.step,
        loss=progress.loss,
        loss_first=progress.loss_first,
        eval_loss_first=progress.eval_loss_first,
        eval_loss=progress.eval_loss,
        tokens_per_second=progress.tokens_per_second_overall if ended else progress.tokens_per_second,
        seconds_left=left,
    )


class Reader:
    """Reads a log incrementally in constant memory. A repeated line counts once."""

    def __init__(self, *, steps: int | None, devices: int) -> None:
        self._progress = Progress(steps=steps)
        self._state = TrainerState()
        self._devices = devices
        self._recent: deque[tuple[float | None, float | None]] = deque(maxlen=_RECENT_STEPS)  # seconds, tokens/s/device
        self._rates, self._inverse_rates = 0, 0.0
        self._seen: OrderedDict[str, None] = OrderedDict()

    def feed(self, lines: Iterable[str]) -> None:
        for line in lines:
            for prefix, add in ((METRICS_PREFIX, self.add_metrics), (EVENT_PREFIX, self.add_event)):
                at = line.find(prefix)
                if at < 0:
                    continue
                text = line[at + len(prefix) :]
                entry = json_object(text)
                if entry is not None and self._is_new(text):
                    add(entry)
                break
            else:
                if line.startswith(_ERROR):
                    self._progress = replace(self._progress, reason=line.removeprefix(_ERROR).strip())

    def add_metrics(self, entry: Mapping[str, Any]) -> None:
        """Add one line of metrics.jsonl."""
        now = self._progress
        if "eval_loss" in entry:
            loss = _number(entry["eval_loss"])
            first = loss if now.eval_loss_first is None else now.eval_loss_first
            self._progress = replace(now, eval_loss=loss, eval_loss_first=first)
        elif "loss" in entry and (step := count(entry.get("step"), least=0)) is not None:
            loss = _number(entry["loss"])
            first = loss if now.step is None else now.loss_first
            last = now.loss if loss is None or loss != loss else loss  # not of a loss of nan
            self._progress = replace(now, step=step + 1, loss=last, loss_first=first)
            rate = _positive(entry.get("tokens_per_second_per_device"))
            self._recent.append((_positive(entry.get("step_seconds")), rate))
            if rate:
                self._rates, self._inverse_rates = self._rates + 1, self._inverse_rates + 1 / rate

    def add_event(self, entry: Mapping[str, Any]) -> None:
        """Add one line of events.jsonl."""
        event = event_of(entry)
        if event is None:
            return
        state = self._state = self._state.after(event)
        self._devices = state.devices or self._devices
        self._progress = replace(
            self._progress,
            loops=state.loops,
            restarts=state.restarts,
            preemptions=state.preemptions,
            failing=state.failing,
            failure=state.failure,
            reason=state.error,
            doing=state.doing,
            steps=state.steps or self._progress.steps,
        )

    def progress(self) -> Progress:
        seconds = [second for second, _ in self._recent if second]
        rates = [rate for _, rate in self._recent if rate]
        # All steps have the same number of tokens, so their mean rate is the harmonic mean of the steps' rates.
        return replace(
            self._progress,
            step_seconds=sum(seconds) / len(seconds) if seconds else None,
            tokens_per_second=len(rates) / sum(1 / rate for rate in rates) * self._devices if rates else None,
            tokens_per_second_overall=self._rates / self._inverse_rates * self._devices if self._rates else None,
        )

    def _is_new(self, text: str) -> bool:
        if text in self._seen:
            return False
        self._seen[text] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return True


def _number(value: Any) -> float | None:
    """Return a number as a float; None for anything else, and for one with hundreds of digits."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except OverflowError:
        return None


def _positive(value: Any) -> float | None:
    """Return a number that can be a rate or a duration, so that it and its inverse are finite; None for others."""
    number = _number(value)
    return number if number is not None and 1e-12 < number < 1e18 else None
