"""How far a run has come: from the lines of its log, where they are all that is to be had, or of its metrics.jsonl.

The trainer prints each line of metrics.jsonl after METRICS and each event after EVENT. Ray may put a prefix of its own
before them ("(RayTrainWorker pid=…, ip=…) "), so they are looked for anywhere in a line.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from launcher.backends.base import RunStatus
from launcher.json_object import json_object

METRICS = "SLIPWAY_METRICS "
EVENT = "SLIPWAY_EVENT "
_ERROR = "Error: "
_RECENT_STEPS = 20
# A log that is read again from a little before its end gives lines twice; so many are remembered.
_REMEMBERED = 8192


@dataclass(frozen=True)
class Progress:
    """What the lines say; what they do not say (yet) is None.

    `step` counts finished steps. Rates are of all devices together: over the last 20 steps, and over all that were
    read. `restarts` counts the times that the training, or the command, began again; `loops` those that it began.
    A host that was told to go is no failure: `preemptions` counts those times, which are none of the restarts.
    `failing`: something failed, and it has not begun again yet; `failure` says what, with a line for the last one.
    `reason` is the sentence that the trainer ended with, "" where it did not say one.
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


def read(lines: Iterable[str], *, steps: int | None, devices: int) -> Progress:
    """The progress that a log's lines tell; `steps` and `devices` are the config's, where the log does not say them."""
    reader = Reader(steps=steps, devices=devices)
    reader.feed(lines)
    return reader.progress()


def metrics(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The lines of metrics.jsonl that a log holds."""
    return _after(METRICS, lines)


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The trainer's events that a log holds."""
    return _after(EVENT, lines)


def _after(prefix: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        _, found, text = line.partition(prefix)
        entry = json_object(text) if found else None
        if entry is not None:
            yield entry


def of_metrics(entries: Iterable[Mapping[str, Any]], *, devices: int) -> Progress:
    """The progress that lines of metrics.jsonl tell."""
    reader = Reader(steps=None, devices=devices)
    for entry in entries:
        reader.add_metrics(entry)
    return reader.progress()


def apply(status: RunStatus, progress: Progress) -> RunStatus:
    """The status with what is known of its progress; its state and reason stay as they are."""
    status = replace(status, steps=progress.steps or status.steps, restarts=max(status.restarts, progress.restarts))
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


def without_beginning(progress: Progress) -> Progress:
    """What the end of a long log tells: the first losses stood before it, and so did the beginning of the loop."""
    return replace(progress, loops=max(1, progress.loops), loss_first=None, eval_loss_first=None)


class Reader:
    """Reads a log bit by bit, in little memory however long it is; the same line twice counts once."""

    def __init__(self, *, steps: int | None, devices: int) -> None:
        self._progress = Progress(steps=steps)
        self._devices = devices
        self._recent: deque[tuple[float | None, float | None]] = deque(maxlen=_RECENT_STEPS)  # seconds, tokens/s/device
        self._rates, self._inverse_rates = 0, 0.0
        self._seen: OrderedDict[str, None] = OrderedDict()

    def feed(self, lines: Iterable[str]) -> None:
        for line in lines:
            for prefix, add in ((METRICS, self.add_metrics), (EVENT, self.add_event)):
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
        """Take one line of metrics.jsonl."""
        now = self._progress
        if "eval_loss" in entry:
            loss = _number(entry["eval_loss"])
            first = loss if now.eval_loss_first is None else now.eval_loss_first
            self._progress = replace(now, eval_loss=loss, eval_loss_first=first)
        elif "loss" in entry and isinstance(entry.get("step"), int):
            loss = _number(entry["loss"])
            first = loss if now.step is None else now.loss_first
            self._progress = replace(now, step=entry["step"] + 1, loss=loss, loss_first=first)
            rate = _number(entry.get("tokens_per_second_per_device"))
            self._recent.append((_number(entry.get("step_seconds")), rate))
            if rate:
                self._rates, self._inverse_rates = self._rates + 1, self._inverse_rates + 1 / rate

    def add_event(self, entry: Mapping[str, Any]) -> None:
        """Take one event (trainer/metrics.py says which there are)."""
        now, message = self._progress, str(entry.get("message") or "")
        match entry.get("event"):
            case "loop_started" | "command_started":
                loops = now.loops + 1
                steps = entry.get("steps")
                steps = steps if isinstance(steps, int) and steps > 0 else now.steps
                devices = entry.get("devices")
                self._devices = devices if isinstance(devices, int) and devices > 0 else self._devices
                restarts = max(now.restarts, loops - 1 - now.preemptions)
                self._progress = replace(
                    now, loops=loops, restarts=restarts, steps=steps, failing=False, failure="", reason=""
                )
            case "preempted":
                self._progress = replace(now, preemptions=now.preemptions + 1, failing=True, failure=message)
            case "worker_failed" | "driver_failed":
                self._progress = replace(now, failing=True, failure=message)
            case "error":
                self._progress = replace(now, reason=message)

    def progress(self) -> Progress:
        seconds = [second for second, _ in self._recent if second]
        rates = [rate for _, rate in self._recent if rate]
        # Steps of equal tokens: their mean rate is the harmonic mean of the steps' rates.
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
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
