"""A config that is faster than a run, and its values as a file for -f."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config.values.writer import dumps
from launcher.products.planner.forecast.changes import Change
from launcher.products.planner.forecast.memory_fit import FitResult
from launcher.products.planner.forecast.speed import Speed

_WIDTH = 118


@dataclass(frozen=True)
class Improvement:
    """A config that was compiled, fits, and is faster than the run by the factor `gain` in tokens per second.

    `overlay` is YAML for -f, after the run's own files.
    """

    change: Change
    verdict: FitResult
    speed: Speed
    gain: float
    global_batch: float | None
    overlay: str

    def as_json(self) -> dict[str, Any]:
        speed = self.speed
        return {
            "sets": dict(self.change.sets),
            "options": self.change.options,
            "gain": self.gain,
            "step_seconds": speed.step_seconds,
            "tokens_per_second_per_device": speed.tokens_per_second_per_device,
            "tflops_per_second_per_device": speed.tflops_per_second_per_device,
            "mfu": speed.mfu,
            "hbm_margin_bytes": self.verdict.margin,
            "global_batch": self.global_batch,
            "overlay": self.overlay,
        }


def overlay(sets: Mapping[str, Any], comments: Sequence[str]) -> str:
    """Return YAML with these values by key, with the comments on top."""
    tree: dict[str, Any] = {}
    for path, value in sets.items():
        *above, key = path.split(".")
        at = tree
        for name in above:
            at = at.setdefault(name, {})
        at[key] = value
    lines = [f"# {line}" for comment in comments for line in textwrap.wrap(comment, _WIDTH)]
    return "\n".join(lines) + "\n" + dumps(tree)
