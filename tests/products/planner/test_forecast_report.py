"""A report shows the forecast next to the measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from launcher.products.planner.forecast import program as programs
from launcher.products.planner.forecast.cache import Cache, folder
from launcher.products.planner.forecast.request import request
from launcher.products.report import summary
from launcher.products.report.model import Metrics, RunData, Series
from tests.products.planner.forecasts import LLAMA, plan, program


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunData:
    """A run whose steps took 2.2 s; the programs in tests/products/planner/forecasts.py take 2 s."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    measured = Series(np.arange(3.0), np.array([2.2, 2.2, 2.2]))
    metrics = Metrics({"step_seconds": measured})
    config = plan(LLAMA, "run.name=x", "train.steps=3").config
    return RunData("x", "ray-job", "succeeded", "", 0.0, label="x", metrics=metrics, config=config)


def test_a_run_that_was_forecast(run: RunData) -> None:
    Cache(folder()).put(request(plan()), programs.read(program()))
    row = summary.values(run)
    assert (row["forecast_step_seconds"], row["forecast_tokens_per_second_per_device"]) == (2.0, 2048.0)
    assert summary.rows([row])[0]["forecast_step_seconds"].text == "2 s, measured +10.0%"
    assert "Forecast" in [column.title for column in summary.shown_columns([row])]


def test_a_run_that_was_not(run: RunData) -> None:
    row = summary.values(run)
    assert row["forecast_step_seconds"] is None
    assert "Forecast" not in [column.title for column in summary.shown_columns([row])]


def test_a_run_without_a_config(run: RunData) -> None:
    other = RunData("y", "local", "failed", "", 0.0, label="y")
    assert summary.values(other)["forecast_step_seconds"] is None
