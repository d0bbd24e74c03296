"""The slices and the waiting runs that the charts of a simulation show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.products.planner.cli.simulation_text import comparison_text
from launcher.products.planner.simulation.changes import Changes
from launcher.products.planner.simulation.charts import all_lanes, waiting_steps
from launcher.products.planner.simulation.comparison import Comparison
from launcher.products.planner.simulation.page import page
from launcher.products.planner.simulation.simulated import figures
from tests.products.planner.test_simulation_trace import BUSY, platform, simulated


def test_a_run_gets_the_lowest_free_slices(tmp_path: Path) -> None:
    result = simulated(tmp_path, BUSY)
    (lanes,) = all_lanes(result, result.ends)
    assert (lanes.flavor, lanes.unit, lanes.count, lanes.left_out) == ("v6e", "slices", 8, 0)
    bars = [(bar.run, bar.low, bar.high, bar.evicted) for bar in lanes.bars]
    assert bars == [("a", 0, 8, True), ("b", 0, 4, False), ("a", 0, 8, False)]
    assert [bar.start for bar in lanes.bars] == pytest.approx([0, 3600, 7200], abs=5)
    for one in lanes.bars:
        for other in lanes.bars:
            apart = one.end <= other.start or other.end <= one.start or one.high <= other.low or other.high <= one.low
            assert one is other or apart


def test_two_runs_at_once_have_different_slices(tmp_path: Path) -> None:
    text = "".join(
        f"- {{name: r{number}, team: research, topology: 4x4, slices: 2, arrives: {number}0, lasts: {lasts}}}\n"
        for number, lasts in enumerate((100, 50, 100))
    )
    result = simulated(tmp_path, text)
    (lanes,) = all_lanes(result, result.ends)
    assert [(bar.run, bar.low, bar.high) for bar in lanes.bars] == [("r0", 0, 2), ("r1", 2, 4), ("r2", 4, 6)]


def test_quota_without_a_price_is_named_if_no_run_uses_it(tmp_path: Path) -> None:
    on = platform()
    on = replace(on, flavors={name: replace(each, usd=None) for name, each in on.flavors.items()})
    never = BUSY.splitlines()[2]
    assert figures(simulated(tmp_path, never, on)).unpriced == ["v6e"]


def test_the_waiting_runs_over_time(tmp_path: Path) -> None:
    result = simulated(tmp_path, BUSY)
    times, numbers = waiting_steps(result, "product", result.ends)
    assert numbers[-1] == 1  # c never starts
    assert max(numbers) == 2
    times, numbers = waiting_steps(result, "research", result.ends)
    waits = [at for at, number in zip(times, numbers, strict=True) if number]
    assert waits[-1] == pytest.approx(3600, abs=5)  # a waits from its preemption until b ends
    assert numbers[-1] == 0


def test_a_page_of_one_simulation_has_no_differences(tmp_path: Path) -> None:
    text = page(Comparison(simulated(tmp_path, BUSY), None, []), "<b>")
    assert "<title>&lt;b&gt; · Slipway simulation</title>" in text
    assert "difference" not in text.partition('<script type="application/json"')[0]
    assert text.count("<figure ") == 2


def test_a_page_has_the_change_and_the_notes_of_the_text(tmp_path: Path) -> None:
    on = platform()
    on = replace(on, flavors={name: replace(each, usd=None) for name, each in on.flavors.items()})
    change = Changes(add=["{a: <b>}"]).as_options(["wide.yaml"], ["x=+1"])
    both = Comparison(
        simulated(tmp_path, BUSY, on), simulated(tmp_path, BUSY, on), ["Topology is not simulated."], change
    )
    text = page(both, "x")
    for option in ("--compare wide.yaml", "--set x=+1", "--add {a: &lt;b&gt;}"):
        assert f"<code>{option}</code>" in text
    assert both.notes[1].startswith("The cost does not include v6e: no price is known")
    for note in both.notes:
        assert note in text
        assert note in " ".join(comparison_text(both).split())
