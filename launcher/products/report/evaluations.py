"""The results of a run's checkpoints on tasks: the lines of evaluations.jsonl in its folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Evaluation:
    """The result of one task. `step` is the number of the checkpoint; None for a Hugging Face folder.

    `metrics` are its numbers by name, the task's main metric first, `stderr` the standard errors of some of them, and
    `higher_is_better` whether a metric is better if it is higher. `samples` of `samples_total` samples were used, at
    most `limit` if it is set, each after `shots` examples. `version` is the task's, and `harness` that of lm-eval.
    `time` is RFC 3339.
    """

    task: str
    step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    stderr: Mapping[str, float] = field(default_factory=dict)
    higher_is_better: Mapping[str, bool] = field(default_factory=dict)
    samples: int | None = None
    samples_total: int | None = None
    limit: int | None = None
    shots: int | None = None
    version: str = ""
    harness: str = ""
    seconds: float | None = None
    time: str = ""

    def text(self, metric: str) -> str:
        """Return the value of a metric with its standard error: "0.512 ± 0.012"; "-" if the task does not have it."""
        value, error = self.metrics.get(metric), self.stderr.get(metric)
        if value is None:
            return "-"
        return number(value) + (f" ± {error:.2g}" if error is not None else "")

    def better(self, metric: str) -> bool:
        return self.higher_is_better.get(metric, True)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def parse(entry: Mapping[str, Any]) -> Evaluation | None:
    """Return the result in a line; None if the line is not a result."""
    task, step = entry.get("task"), entry.get("step")
    metrics = _numbers(entry.get("metrics"))
    if not isinstance(task, str) or not task or not metrics or not (step is None or _is_whole(step)):
        return None
    better = entry.get("higher_is_better")
    return Evaluation(
        task=task,
        step=step,
        metrics=metrics,
        stderr=_numbers(entry.get("stderr")),
        higher_is_better={key: value is not False for key, value in better.items()} if isinstance(better, dict) else {},
        **{key: entry[key] if _is_whole(entry.get(key)) else None for key in _WHOLE},
        version=_text(entry.get("version")),
        harness=_text(entry.get("harness")),
        seconds=_numbers({"seconds": entry.get("seconds")}).get("seconds"),
        time=_text(entry.get("time")),
    )


def parse_all(entries: Iterable[Mapping[str, Any]]) -> tuple[list[Evaluation], int]:
    """Return the results in the lines of a file, in the order of steps and tasks, and the number of other lines.

    If a checkpoint was evaluated on a task again, the later result counts.
    """
    by_task: dict[tuple[int, str], Evaluation] = {}
    other = 0
    for entry in entries:
        evaluation = parse(entry)
        if evaluation is None:
            other += 1
        else:
            by_task[-1 if evaluation.step is None else evaluation.step, evaluation.task] = evaluation
    return [by_task[key] for key in sorted(by_task)], other


def latest(results: Sequence[Evaluation]) -> dict[str, Evaluation]:
    """Return the result of each task of the checkpoint with the highest step, by task."""
    return {last.task: last for last in sorted(results, key=lambda run: -1 if run.step is None else run.step)}


_WHOLE = ("samples", "samples_total", "limit", "shots")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _numbers(tree: Any) -> dict[str, float]:
    """Return the finite numbers of a map."""
    numbers = {}
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
            numbers[str(key)] = float(value)
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
