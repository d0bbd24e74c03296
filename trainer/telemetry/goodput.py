"""Goodput: how much of a run's time has become training that counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any


def productive_seconds(lines: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of the steps that count: those in metrics.jsonl, where each step stands once, however often it was done.

    Each step's seconds are from one finished step to the next, without evaluations; those of the first step after a
    start hold its compilation.
    """
    return sum(float(line["step_seconds"]) for line in lines if "loss" in line)


def first_start(starts: Iterable[Mapping[str, Any]]) -> float:
    """The time of the run's first start, in seconds since 1970; `starts` are its loop_started events, oldest first."""
    return datetime.fromisoformat(next(iter(starts))["time"]).timestamp()


def goodput(productive: float, elapsed: float) -> float:
    """Productive seconds by the seconds since the run's first start, earlier attempts and the time between them
    included; between 0 and 1. 0 at the first start itself."""
    return min(productive / elapsed, 1.0) if elapsed > 0 else 0.0
