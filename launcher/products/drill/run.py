"""A run of a drill: what its metrics and events show. Each place reads them in its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from launcher.backends.base import RunStatus
from launcher.trainer_output import Event, EventKind

_WHILE_TRAINING = ("training", "evaluation", "checkpoint")
_EXACT = ("loss", "grad_norm", "param_norm", "learning_rate")


class DrillRun(ABC):
    """A run of a drill."""

    name: str

    @abstractmethod
    def metrics(self) -> Iterable[dict[str, Any]]:
        """Return the lines of metrics.jsonl so far."""

    @abstractmethod
    def events(self) -> Iterable[Event]:
        """Return the events so far."""

    @abstractmethod
    def status(self) -> RunStatus:
        """Return the current status."""

    @abstractmethod
    def submit(self) -> None:
        """Start the run, or its next attempt."""

    @abstractmethod
    def notified(self) -> Sequence[str] | None:
        """Return the events of the notifications that arrived, in order; None if the place has no webhook."""

    @abstractmethod
    def stays(self) -> Mapping[str, str]:
        """Return what stays if a process that trains is killed, by its name in a sentence, with its identity now."""

    def numbers(self) -> dict[int, tuple[Any, ...]]:
        """Return the numbers of each step that must be equal bit for bit. JSON keeps every bit of a double."""
        steps = (line for line in self.metrics() if "loss" in line)
        return {int(line["step"]): tuple(line.get(key) for key in _EXACT) for line in steps}

    def steps(self) -> int:
        """Return the number of finished steps."""
        return max(self.numbers(), default=-1) + 1

    def starts(self) -> list[int]:
        """Return the step of each start of the training."""
        return [event.step or 0 for event in self.events() if event.kind is EventKind.LOOP_STARTED]

    def steps_before_restart(self) -> int:
        """Return the number of steps that were finished before the first restart, if that can be read afterwards."""
        return 0

    def unseen(self) -> frozenset[int]:
        """Return the steps that were finished, but whose lines were lost with a pod."""
        return frozenset()

    def spent(self, since: float, seconds: float) -> dict[str, float]:
        """Return the seconds of each phase in the `seconds` after a fault at `since` (Unix seconds).

        "detection" is the time until the failure is known or the trainer starts again, and "workers" the time until
        Ray has started new workers.
        """
        entered = [("detection", since)]
        for event in self.events():
            phase = {EventKind.PHASE: event.phase, EventKind.WORKER_FAILED: "workers"}.get(event.kind)
            if not phase or (len(entered) == 1 and phase in _WHILE_TRAINING):
                continue
            at = datetime.fromisoformat(event.time).timestamp()
            if since < at < since + seconds:
                entered.append((phase, at))
        spent: defaultdict[str, float] = defaultdict(float)
        for (phase, at), (_, until) in pairwise([*entered, ("", since + seconds)]):
            spent[phase] += until - at
        return {phase: round(each, 1) for phase, each in spent.items()}
