"""The part of the log that people read: a line for each phase of the start, step, evaluation and checkpoint.

The same is in the log for programs, too: see trainer/metrics.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from trainer.config import RunConfig
from trainer.metrics import PHASES, event_line, print_event, print_line, write_event
from trainer.reporting.reporter import Reporter

_OF_A_START = PHASES[: PHASES.index("training")]


def announce(config: RunConfig, phase: str) -> None:
    """Report that the run enters one of PHASES. The launcher follows a run in a cluster by the log alone."""
    with contextlib.suppress(OSError):  # a full disk must not end the training
        if config.is_local:
            write_event(config.folder, "phase", phase=phase)
        else:
            print_event(event_line("phase", phase=phase))


class RunLog:
    """The log of one process. Only the first host's process writes."""

    def __init__(self, config: RunConfig, *, first: bool) -> None:
        self._config, self._first = config, first
        self.reporter = Reporter(config) if first else None
        self._phase, self._since = "", 0.0
        self.steps = 0
        self.devices = 1

    def enter(self, phase: str) -> None:
        """Report the phase that begins, and how long the phase of the start took that ends with it."""
        if not self._first or phase == self._phase:
            return
        announce(self._config, phase)
        if self.reporter is not None:
            self.reporter.enter(phase)
        if self._phase in _OF_A_START:
            print_line(f"start: {self._phase} {self._seconds():.1f} s")
        self._phase, self._since = phase, time.perf_counter()

    def close(self, end: str) -> None:
        """End the attempt in the run's record: succeeded, failed or preempted."""
        if self.reporter is not None:
            self.reporter.close(end)

    def adapters(self, parameters: int, size: int) -> None:
        """Print how much a run with adapters trains. `size` is in bytes, without the optimizer."""
        if self._first:
            print_line(f"adapters: {parameters:,} trained parameters, {size / 1e6:,.1f} MB of each checkpoint")

    def reference(self, pairs: int, seconds: float) -> None:
        """Print how many pairs of DPO have the log probabilities of the reference now, and how long that took."""
        if self._first:
            print_line(f"reference: log probabilities of {pairs:,} pairs in {seconds:.1f} s")

    def step(self, line: Mapping[str, Any]) -> None:
        """Print a step's line of metrics.jsonl, such as "step 3/20  loss 9.856  grad norm 1.20  1,540 tokens/s"."""
        parts = [f"step {self._of(line['step'] + 1)}", f"loss {line['loss']:.3f}"]
        if "grad_norm" in line:
            parts.append(f"grad norm {_short(line['grad_norm'])}")
        if line["tokens_per_second_per_device"]:
            parts.append(f"{line['tokens_per_second_per_device'] * self.devices:,.0f} tokens/s")
        print_line("  ".join([*parts, f"{line['step_seconds']:.2f} s"]))

    def evaluation(self, line: Mapping[str, Any]) -> None:
        """Print an evaluation's line of metrics.jsonl."""
        print_line(
            f"evaluation after step {self._of(line['step'])}  held-out loss {line['eval_loss']:.3f}  "
            f"{self._seconds():.2f} s"
        )

    def checkpoint(self, step: int, seconds: float) -> None:
        """Print how long a step's checkpoint paused the training; it is then written in the background."""
        if self._first:
            print_line(f"checkpoint after step {self._of(step + 1)}  training paused for {seconds:.2f} s")

    def _seconds(self) -> float:
        return time.perf_counter() - self._since

    def _of(self, done: int) -> str:
        return f"{done}/{self.steps}"


def _short(value: float) -> str:
    return f"{value:.2f}" if 0.01 <= abs(value) < 1e5 else f"{value:.3g}"
