"""Convert the lines of metrics.jsonl and events.jsonl, or of a log, to the data of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import numpy as np

from launcher.json_object import json_object, load_json
from launcher.products.report.model import (
    ACCURACY,
    COUNTED,
    EPOCH,
    EVAL_LOSS,
    GRAD_NORM,
    LEARNING_RATE,
    LOSS,
    MARGIN,
    MFU,
    STEP_SECONDS,
    TFLOPS,
    TOKENS,
    Metrics,
    MixedSource,
    Numbers,
    Series,
)

_OF_A_STEP = (LOSS, STEP_SECONDS, TOKENS, TFLOPS, MFU, LEARNING_RATE, GRAD_NORM, COUNTED, MARGIN, ACCURACY, EPOCH)
# Clock corrections are smaller than this (s).
_JUMP = 1.0
# The page's script cannot represent integers from here on exactly.
_MOST = 2**53
# The year 9900 (s): the times of the page, some time later, still have a date.
_LATEST = 250_000_000_000

Entry = Mapping[str, Any]


def lines(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """Return the JSON objects of a file of lines, and the number of invalid lines (usually one, cut by a kill)."""
    data = data.strip()
    try:  # all at once: most files are valid, and this is ten times faster
        entries = load_json(b"[" + data.replace(b"\n", b",") + b"]")
    except (ValueError, RecursionError):  # invalid JSON, or nested too deeply
        entries = [json_object(line) for line in data.split(b"\n") if line.strip()]
    objects = [entry for entry in entries if isinstance(entry, dict)]
    return objects, len(entries) - len(objects)


def metrics(entries: Sequence[Entry], *, damaged: int = 0) -> Metrics:
    """Return the series of all quantities, in the order of their steps. For a repeated step, the later line is used."""
    steps: dict[int, Entry] = {}
    evals: dict[int, Entry] = {}
    for entry in entries:
        step = entry.get("step")
        if type(step) is int and 0 <= step < _MOST:  # type() excludes booleans, which isinstance counts as int
            (evals if EVAL_LOSS in entry else steps)[step] = entry
        else:
            damaged += 1
    notes = []
    if damaged:
        notes.append(
            f"{damaged} line{'s' if damaged > 1 else ''} of its metrics cannot be read and "
            f"{'are' if damaged > 1 else 'is'} left out."
        )
    doubles = len(entries) - len(steps) - len(evals)
    if doubles > 0 and not damaged:
        notes.append(f"{doubles} of its steps were done twice because of a restart; the later one counts.")
    times = _times(entries)
    back = float(np.max(times[:-1] - times[1:], initial=0.0))
    if back > _JUMP and doubles <= 0:
        notes.append(f"The clock of its machine went back by {back:,.0f} s, so its times are not reliable.")
    series = {EVAL_LOSS: _series(EVAL_LOSS, *_in_order(evals))}
    ordered, rows = _in_order(steps)
    for key in _OF_A_STEP:
        quantity = _series(key, ordered, rows)
        if key == LOSS or len(quantity.finite):
            series[key] = quantity
    return Metrics(series, times.tolist(), notes, _sources(rows))


def _sources(rows: Sequence[Entry]) -> list[MixedSource]:
    """Return the sources of a mixture, in the order of their names."""
    steps = [row["mixture"] for row in rows if isinstance(row.get("mixture"), dict)]
    measured: dict[str, list[tuple[float, float]]] = {}
    for step in steps:
        for name, source in step.items():
            if isinstance(source, dict):
                measured.setdefault(name, []).append((number(source.get("share")), number(source.get("epoch"))))
    # A source that was added later had no share before.
    return [
        MixedSource(name, float(np.nansum([share for share, _ in values])) / len(steps), values[-1][1])
        for name, values in sorted(measured.items())
    ]


def _in_order(entries: Mapping[int, Entry]) -> tuple[Numbers, Sequence[Entry]]:
    ordered = sorted(entries)
    return np.array(ordered, dtype=np.float64), [entries[step] for step in ordered]


def _series(key: str, steps: Numbers, rows: Sequence[Entry]) -> Series:
    """Return the quantity over the steps of the rows that have it."""
    try:
        values = list(map(itemgetter(key), rows))
    except KeyError:
        has = np.array([key in row for row in rows], dtype=bool)
        steps, values = steps[has], [row[key] for row in rows if key in row]
    try:
        column = np.array(values, dtype=np.float64)  # null becomes NaN
    except (ValueError, TypeError, OverflowError):
        column = np.array([number(value) for value in values])
    return Series(steps, column)


def _times(entries: Sequence[Entry]) -> Numbers:
    """Return the times of the lines that have one."""
    texts = [text for entry in entries if isinstance(text := entry.get("time"), str)]
    try:  # all at once, in the trainer's format: one by one takes as long as everything else
        stamps = np.array([text[:-1] if text[-1:] == "Z" else "" for text in texts], dtype="datetime64[ms]")
        seconds = stamps.astype(np.int64) / 1000  # NaT is the smallest integer
        if ((seconds >= 0) & (seconds < _LATEST)).all():
            return seconds
    except (ValueError, TypeError):
        pass
    return np.array([at for text in texts if (at := time_of(text)) is not None], dtype=np.float64)


def number(value: Any) -> float:
    """Return a number, or NaN if the value is not a number (null, because JSON has no NaN)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer with hundreds of digits
        return math.nan


def time_of(text: Any) -> float | None:
    """Return an RFC 3339 time from 1970 on as seconds since then, or None for any other value."""
    try:
        at = datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None
    seconds = at.timestamp() if at is not None and at.tzinfo is not None else -1.0
    return seconds if 0 <= seconds < _LATEST else None
