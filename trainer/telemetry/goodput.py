"""Goodput: the share of a run's time that became training that counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any


def productive_seconds(lines: Iterable[Mapping[str, Any]]) -> float:
    """Return the seconds of the steps that count: those in metrics.jsonl, which has each step once, even if repeated.

    Each step's seconds are from one finished step to the next, without evaluations. Those of the first step after a
    start include its compilation.
    """
    return sum(float(line["step_seconds"]) for line in lines if "loss" in line)


def first_start(starts: Iterable[Mapping[str, Any]]) -> float:
    """Return the time of the run's first start, in Unix seconds; `starts` are its loop_started events, oldest first."""
    return datetime.fromisoformat(next(iter(starts))["time"]).timestamp()


def goodput(productive: float, elapsed: float) -> float:
    """Return productive seconds divided by the seconds since the run's first start, including earlier attempts and the
    time between them. Between 0 and 1; 0 at the first start itself."""
    return min(productive / elapsed, 1.0) if elapsed > 0 else 0.0
