"""The simulation of Kueue's scheduler, held against what the real Kueue 0.19.2 did (../shared/recordings/queues).

The recordings are from a small busy machine. A run that starts 50 ms later than recorded can change everything after
it, so that no simulation agrees with every scenario; `make simulate-proof` prints the figures. What is held here:
the scenarios that agree from the first to the last event, and what happens within 10 s of each recorded state.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from launcher.k8s.kueue.scheduler.simulation import simulate
from launcher.simulation.event_lines import as_line
from launcher.simulation.scenario_file import ScenarioLine, read_scenarios
from tests.charts import schemas
from tests.simulate_proof.agreement import compare
from tests.simulate_proof.windows import windows


def recordings(name: str) -> list[ScenarioLine]:
    return list(read_scenarios(schemas.shared() / "recordings" / "queues" / f"{name}.jsonl.gz"))


@pytest.mark.parametrize(
    ("name", "whole", "starts", "decisions"), [("classic", 28, 0.79, 0.94), ("fair", 8, 0.65, 0.86)]
)
def test_the_simulation_agrees_with_recordings(name: str, whole: int, starts: float, decisions: float) -> None:
    lines = recordings(name)
    found = [compare(line.raw, as_line(line.id, line.scenario, simulate(line.scenario))) for line in lines]
    assert sum(each.agrees for each in found) >= whole
    assert sum(each.close_starts for each in found) / sum(each.admissions for each in found) >= starts
    steps = [windows(line.raw, line.scenario) for line in lines]
    assert sum(each.found for each in steps) / sum(each.decisions for each in steps) >= decisions


def test_the_comparison_sees_a_difference(tmp_path: Path) -> None:
    """A recording agrees with itself, and does not if one run is moved by more than the noise."""
    raw = recordings("classic")[0].raw
    assert compare(raw, {"events": raw["events"], "never": raw["never"]}).agrees
    events = [
        [at + (9 if (run, what) == ("r3", "admitted") else 0), run, what, more] for at, run, what, more in raw["events"]
    ]
    assert not compare(raw, {"events": events, "never": raw["never"]}).agrees
    changed = tmp_path / "changed.jsonl.gz"
    changed.write_bytes(gzip.compress(json.dumps({**raw, "fair": True}).encode()))
    (line,) = read_scenarios(changed)
    assert line.scenario.settings.fair_sharing
