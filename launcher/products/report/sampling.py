"""Fewer points to draw, without hiding a spike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


def sampled(steps: Any, values: Any, buckets: int) -> tuple[Points, Points]:
    """Return a sample of the points. Few points are all kept.

    If there are many points, keep the first, the last, and the lowest and highest of each of about `buckets` equal
    ranges. Also keep one NaN of each range that has one, so that the line has its gap.
    """
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if len(x) <= 2 * buckets:
        return x, y
    width = -(-len(x) // buckets)
    rows = -(-len(x) // width)
    gaps = np.zeros(rows * width, dtype=bool)
    gaps[: len(y)] = np.isnan(y)
    low, high = np.full(rows * width, np.inf), np.full(rows * width, -np.inf)
    low[: len(y)] = np.where(gaps[: len(y)], np.inf, y)
    high[: len(y)] = np.where(gaps[: len(y)], -np.inf, y)
    starts = np.arange(rows) * width
    keep = [
        starts + low.reshape(rows, width).argmin(axis=1),
        starts + high.reshape(rows, width).argmax(axis=1),
        (starts + gaps.reshape(rows, width).argmax(axis=1))[gaps.reshape(rows, width).any(axis=1)],
        np.array([0, len(x) - 1]),
    ]
    chosen = np.unique(np.concatenate(keep))
    return x[chosen], y[chosen]


def smoothed(values: Any, weight: float) -> Points:
    """Return the exponential moving average: `weight` is the share of the earlier values in each step.

    Divided by the sum of the weights, so that the first values count completely. NaN stays NaN and counts nowhere.
    """
    averages, total, weights = [], 0.0, 0.0
    for value in np.asarray(values, dtype=np.float64).tolist():
        if math.isfinite(value):
            total, weights = weight * total + (1 - weight) * value, weight * weights + 1 - weight
            averages.append(total / weights)
        else:
            averages.append(math.nan)
    return np.array(averages)
