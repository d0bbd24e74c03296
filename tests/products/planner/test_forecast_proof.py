"""The published runs: the launcher accepts the config of each, and the page shows the result of each."""

from __future__ import annotations

import pytest

from tests.products.planner.forecast_proof.__main__ import _plan, page
from tests.products.planner.forecast_proof.runs import REFUSED, Run, published


@pytest.mark.parametrize("run", published(), ids=lambda run: run.name)
def test_every_published_run_is_a_plan(run: Run) -> None:
    """`check` must accept all of them, because they ran."""
    plan = _plan(run)
    assert plan.config["accelerator"]["kind"] == "tpu"
    assert run.seconds > 0
    assert run.source


def test_names_are_unique_and_rejected_flags_are_dropped() -> None:
    runs = published()
    assert len({run.name for run in runs}) == len(runs) >= 40
    dropped = {name for run in runs for name in run.refused}
    assert dropped == frozenset().union(*REFUSED.values())
    for run in runs:
        of_the_chip = REFUSED[""] | REFUSED.get(run.slice["accelerator"], frozenset())
        assert not any(flag.lstrip("-").partition("=")[0] in of_the_chip for flag in run.flags)


def test_the_page_shows_errors_and_refusals() -> None:
    fits = {"measured": 2.0, "forecast": 2.2, "error": 0.1, "fits": True, "too_large_at": 8.0, "libtpu": "0.0.46"}
    text = page({"a": fits, "b": {"measured": 1.0, "refused": "MaxText does not know the model b."}})
    assert "Forecasts: 1. Error: median 10.0%, worst 10.0%." in text
    assert "| a | 2.000 s | 2.200 s | +10.0% | 8.0 | 0.0.46 |" in text
    assert "MaxText does not know the model b." in text
    assert "forecast not to fit, but it ran" in page({"c": {"measured": 1.0, "fits": False}})
    assert "No forecast yet." in page({})
