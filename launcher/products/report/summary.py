"""The row of a run in a report: the data of the page's first table and of `-o json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from launcher import formatting, hooks
from launcher.products.report import evaluations
from launcher.products.report.model import LOSS, MFU, STEP_SECONDS, TFLOPS, TOKENS, RunData


@dataclass(frozen=True)
class Column:
    """A column. `better` is which value is the best: "least", "most", or "" if there is no best value."""

    key: str
    title: str
    better: str = ""
    number: bool = True
    help: str = ""


COLUMNS = (
    Column("name", "Run", number=False),
    Column("state", "State", number=False),
    Column("steps", "Steps", help="steps done, of the steps requested"),
    Column("loss", "Final loss", "least", help="loss of the last step that has one"),
    Column("eval_loss", "Best held-out loss", "least"),
    Column("tokens_per_second_per_device", "Tokens/s/device", "most", help="median over its steps"),
    Column("tflops_per_second_per_device", "TFLOP/s/device", "most", help="median over its steps"),
    Column("mfu", "MFU", "most", help="model FLOP/s utilization: of the chip's peak, median over its steps"),
    Column("step_seconds", "Step time", "least", help="median over its steps"),
    Column(
        "forecast_step_seconds",
        "Forecast",
        help="the step time from launcher forecast, and how far the measured one differs",
    ),
    Column("wall_seconds", "Wall", help="from its submission to its end, or to now"),
    Column("queue_seconds", "Queued", help="time in which it waited for chips"),
    Column("goodput", "Goodput", "most", help="share of the time with chips that went into steps that count"),
    Column("restarts", "Restarts", help="after failures"),
    Column("preemptions", "Preemptions", help="starts after it had to release its chips"),
    Column("chips", "Chips", help="devices that it trained on"),
)


_MOST_TASKS = 4
"""The tasks that have a column; the page's section "Evaluations" has all of them."""
_TASK = "task:"


@dataclass(frozen=True)
class Cell:
    text: str
    best: bool = False
    bad: bool = False
    help: str = ""


def values(run: RunData) -> dict[str, Any]:
    """Return the run's row as data: seconds, and shares from 0 to 1. None is not known."""
    metrics, goodput = run.metrics, run.goodput
    forecast = hooks.forecast_speed(run.config)
    return {
        "name": run.label,
        "state": run.state,
        "reason": run.reason,
        "kind": run.kind,
        "step": metrics.steps_done,
        "steps": run.steps_wanted,
        "loss": metrics.of(LOSS).last,
        "loss_not_finite_at": metrics.of(LOSS).not_finite[:1],
        "eval_loss": metrics.best_eval,
        "evaluations": list(run.evaluations),
        "tokens_per_second_per_device": metrics.of(TOKENS).median,
        "tflops_per_second_per_device": metrics.of(TFLOPS).median,
        "mfu": metrics.of(MFU).median,
        "step_seconds": metrics.of(STEP_SECONDS).median,
        "forecast_step_seconds": forecast.step_seconds if forecast else None,
        "forecast_tokens_per_second_per_device": forecast.tokens_per_second_per_device if forecast else None,
        "wall_seconds": run.wall,
        "queue_seconds": run.waited,
        "goodput": goodput.share if goodput else None,
        "productive_seconds": goodput.productive if goodput else None,
        "held_seconds": run.held or None,
        "restarts": run.restarts,
        "preemptions": run.preemptions or None,
        "attempt": run.attempt,
        "chips": run.chips,
        "accelerator": run.accelerator,
        "source": run.source,
        "missing": [*run.missing, *metrics.notes],
    }


def as_json(run: RunData) -> dict[str, Any]:
    """Return the row with plain data only."""
    return {**values(run), "evaluations": list(map(asdict, run.evaluations))}


def rows(data: Sequence[Mapping[str, Any]]) -> list[dict[str, Cell]]:
    """Return a row of cells for each run, from the `values` of each."""
    tasks = _tasks(data)
    data = [{**one, **_main_metrics(one)} for one in data]
    return [{column.key: _cell(column, one, data) for column in (*COLUMNS, *tasks)} for one in data]


def shown_columns(data: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns in which at least one run has a value. The columns of tasks are next to the losses."""
    needed = ("name", "state", "steps", "loss", "restarts")
    shown = [column for column in COLUMNS if column.key in needed or any(one[column.key] is not None for one in data)]
    after = max(number for number, column in enumerate(shown) if column.key in ("loss", "eval_loss")) + 1
    return [*shown[:after], *_tasks(data), *shown[after:]]


def _tasks(data: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return a column for the main metric of each of the first tasks."""
    columns: dict[str, Column] = {}
    for run in data:
        for result in evaluations.latest(run["evaluations"]).values():
            metric = next(iter(result.metrics))
            key, better = f"{_TASK}{result.task}", "most" if result.better(metric) else "least"
            columns.setdefault(
                key, Column(key, result.task, better, help=f"{metric} of its last checkpoint that was evaluated")
            )
    return list(columns.values())[:_MOST_TASKS]


def _main_metrics(run: Mapping[str, Any]) -> dict[str, Any]:
    results = evaluations.latest(run["evaluations"]).values()
    return {f"{_TASK}{result.task}": next(iter(result.metrics.values())) for result in results}


def _cell(column: Column, run: Mapping[str, Any], data: Sequence[Mapping[str, Any]]) -> Cell:
    value = run.get(column.key)
    if column.key == "steps":
        done, wanted = run["step"], run["steps"]
        return Cell(f"{done or 0:,}" + (f" of {wanted:,}" if wanted and wanted != done else ""))
    if column.key == "state":
        return Cell(str(value), bad=value == "failed", help=str(run["reason"]))
    if column.key == "loss" and run["loss_not_finite_at"]:
        at = run["loss_not_finite_at"][0]
        return Cell(
            f"{_text(column.key, value)} (not finite at step {at + 1:,})", bad=True, help="its loss was NaN or infinite"
        )
    if column.key == "chips" and run["accelerator"] and value is not None:
        return Cell(str(value), help=str(run["accelerator"]))
    if column.key == "forecast_step_seconds" and value is not None:
        measured = run["step_seconds"]
        return Cell(f"{value:.4g} s" + (f", measured {measured / value - 1:+.1%}" if measured else ""))
    others = [other[column.key] for other in data if other.get(column.key) is not None]
    best = False
    if column.better and value is not None and len(set(others)) > 1:
        best = value == (min(others) if column.better == "least" else max(others))
    return Cell(_text(column.key, value), best=best)


def _text(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key.startswith(_TASK):
        return evaluations.number(value)
    if key in ("mfu", "goodput"):
        return f"{value:.1%}"
    if key == "step_seconds":
        return f"{value:.4g} s"
    if key.endswith("_seconds"):
        return formatting.duration(value)
    if key in ("loss", "eval_loss"):
        return f"{value:.4f}"
    if key in ("tokens_per_second_per_device", "tflops_per_second_per_device"):
        return f"{value:,.1f}" if value >= 10 else f"{value:.4g}"
    return str(value)
