"""The data of a run in a report, from any source. Times are seconds since 1970, by the clock that wrote them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from launcher.products.report.evaluations import Evaluation
from launcher.trainer_output import Event

Numbers = NDArray[np.float64]


class Phase(StrEnum):
    """A phase of a run. The run holds its chips only while it starts, trains or restarts."""

    QUEUED = "queued"
    STARTING = "starting"
    TRAINING = "training"
    RESTARTING = "restarting"
    PREEMPTED = "preempted"
    STOPPED = "stopped"

    @property
    def holds_chips(self) -> bool:
        return self in (Phase.STARTING, Phase.TRAINING, Phase.RESTARTING)

    @property
    def waits(self) -> bool:
        """Return whether the run waits for chips."""
        return self in (Phase.QUEUED, Phase.PREEMPTED)


@dataclass(frozen=True)
class Span:
    """A phase from `start` to `end`."""

    phase: Phase
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Mark:
    """An event at one moment: `what` in a word or two, `says` the message of its source."""

    at: float
    what: str
    says: str = ""
    bad: bool = False


@dataclass(frozen=True, eq=False)
class Series:
    """One quantity of a run: its values and their steps, both of the same length. A value may be NaN."""

    steps: Numbers = field(default_factory=lambda: np.empty(0))
    values: Numbers = field(default_factory=lambda: np.empty(0))

    @cached_property
    def finite(self) -> Numbers:
        numbers: Numbers = self.values[np.isfinite(self.values)]
        return numbers

    @property
    def last(self) -> float | None:
        return float(self.finite[-1]) if len(self.finite) else None

    @cached_property
    def median(self) -> float | None:
        return float(np.median(self.finite)) if len(self.finite) else None

    @cached_property
    def not_finite(self) -> list[int]:
        """The steps whose value is not a number (the trainer writes null for NaN and infinity)."""
        return [int(step) for step in self.steps[~np.isfinite(self.values)]]


LOSS, EVAL_LOSS, STEP_SECONDS = "loss", "eval_loss", "step_seconds"
TOKENS, TFLOPS, MFU = "tokens_per_second_per_device", "tflops_per_second_per_device", "mfu"
LEARNING_RATE, GRAD_NORM = "learning_rate", "grad_norm"
COUNTED, MARGIN, ACCURACY, EPOCH = "counted_tokens", "reward_margin", "reward_accuracy", "epoch"
"""Of fine-tuning: the tokens that the loss counts, of pairs the rewards of their answers, and the passes over the data.
"""


@dataclass(frozen=True)
class Epoch:
    """One pass over the examples: its number from 1, its last step, and the mean loss of its steps. `eval_loss` is the
    held-out loss of the last evaluation in it, or None."""

    number: int
    step: int
    loss: float
    eval_loss: float | None
    counted: float
    """The tokens of a step that count, divided by the tokens of one device in a step; NaN if they are not known."""


@dataclass(frozen=True)
class MixedSource:
    """A source of data.mixture: its mean share of the tokens of a step, and the passes over it at the last step."""

    name: str
    share: float
    epoch: float


@dataclass(frozen=True)
class Metrics:
    """metrics.jsonl: a Series for each quantity, by its key in the file. `times` are those of its lines, in file order.
    `notes` are sentences about irregularities in the file. `sources` are those of a mixture."""

    series: Mapping[str, Series] = field(default_factory=dict)
    times: Sequence[float] = ()
    notes: Sequence[str] = ()
    sources: Sequence[MixedSource] = ()

    def of(self, key: str) -> Series:
        return self.series.get(key) or Series()

    @property
    def steps_done(self) -> int | None:
        steps = self.of(LOSS).steps
        return int(steps[-1]) + 1 if len(steps) else None

    @cached_property
    def epochs(self) -> list[Epoch]:
        """The epochs of a fine-tuning that were begun; [] for other runs."""
        numbers, losses, evals = self.of(EPOCH), self.of(LOSS), self.of(EVAL_LOSS)
        counted, rates, seconds = self.of(COUNTED), self.of(TOKENS), self.of(STEP_SECONDS)
        known = len(rates.finite) and np.array_equal(rates.steps, seconds.steps)
        whole = float(np.nanmedian(rates.values * seconds.values)) if known else math.nan
        found = []
        for number in np.unique(np.floor(numbers.finite)):
            steps = numbers.steps[np.floor(numbers.values) == number]
            mean = losses.values[np.isin(losses.steps, steps) & np.isfinite(losses.values)].mean()
            within = evals.values[(evals.steps > steps[0]) & (evals.steps <= steps[-1] + 1)]  # it counts finished steps
            held_out = float(within[-1]) if len(within) else None
            share = float(counted.values[np.isin(counted.steps, steps)].mean()) / whole if len(counted.steps) else whole
            found.append(Epoch(int(number) + 1, int(steps[-1]) + 1, float(mean), held_out, share))
        return found

    @property
    def best_eval(self) -> float | None:
        losses = self.of(EVAL_LOSS).finite
        return float(losses.min()) if len(losses) else None


@dataclass(frozen=True)
class Goodput:
    """The share of the time with chips that was spent on steps that count.

    productive: seconds of the steps in metrics.jsonl, each once, so a step that was lost and repeated counts once. The
    first step after each start counts as the run's median step, because the rest of it is compilation.
    held: seconds from the first start to the end in which the run had its chips, whether it trained or not. Time in the
    queue, before the first start or after a preemption, does not count.
    """

    productive: float
    held: float

    @property
    def share(self) -> float:
        return min(1.0, self.productive / self.held)


@dataclass(frozen=True)
class EarlierConfig:
    """A config with which the run trained before another one replaced it, at `step` (None if it is not known)."""

    config: Mapping[str, Any]
    step: int | None


@dataclass(frozen=True)
class RunData:
    """One run of a report. `label` is its name, made unique in the report.

    `source` is a sentence on where the data comes from. `missing` has one sentence for each gap in it. `origins` is
    where each key of `config` was written, and is empty if the origins were not kept. `now` is the time of reading.
    """

    name: str
    kind: str
    state: str
    source: str
    now: float
    label: str = ""
    reason: str = ""
    submitted: float | None = None
    ended: float | None = None
    steps_wanted: int | None = None
    restarts: int = 0
    preemptions: int = 0
    attempt: int = 1
    chips: int | None = None
    accelerator: str = ""
    metrics: Metrics = field(default_factory=Metrics)
    begins: Sequence[int] = ()
    spans: Sequence[Span] = ()
    marks: Sequence[Mark] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    earlier: Sequence[EarlierConfig] = ()
    evaluations: Sequence[Evaluation] = ()
    samples: Sequence[Event] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()

    @property
    def ends(self) -> float:
        return self.ended if self.ended is not None else self.now

    @property
    def wall(self) -> float | None:
        """Seconds from the submission (or the first known time) of the run to its end, or to now."""
        begins = (
            self.submitted if self.submitted is not None else min((span.start for span in self.spans), default=None)
        )
        return None if begins is None else max(0.0, self.ends - begins)

    @property
    def waited(self) -> float | None:
        """Seconds in which the run wanted chips and had none, or None if not known."""
        if self.submitted is None:
            return None
        return sum(span.seconds for span in self.spans if span.phase.waits)

    @property
    def held(self) -> float:
        return sum(span.seconds for span in self.spans if span.phase.holds_chips)

    @cached_property
    def goodput(self) -> Goodput | None:
        """The goodput of the run, or None if it had no chips yet or has done no step."""
        seconds = self.metrics.of(STEP_SECONDS)
        usual = seconds.median
        if usual is None or self.held <= 0:
            return None
        values = np.nan_to_num(seconds.values, nan=0.0, posinf=0.0, neginf=0.0)
        first = np.isin(seconds.steps, [*self.begins, seconds.steps[0]])
        productive = np.where(first, np.minimum(values, usual), values).sum()
        return Goodput(float(productive), self.held)
