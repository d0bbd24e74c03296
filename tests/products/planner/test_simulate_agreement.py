"""The simulation of Kueue's scheduler, held against what the real Kueue 0.19.2 did (tests/upstream/recordings/queues).

The recordings are from a small busy machine. A run that starts 50 ms later than recorded can change everything after
it, so that no simulation agrees with every scenario; `make simulate-proof` prints the figures. What is held here:
the scenarios that agree from the first to the last event, those that do with the delays of the machine, and what
happens within 10 s of each recorded state.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from launcher.products.planner.scheduler import preemption
from launcher.products.planner.scheduler.state import JobState
from launcher.products.planner.simulation.scenario_file import read_scenarios
from tests import upstream
from tests.products.planner.simulate_proof import delays, page
from tests.products.planner.simulate_proof.agreement import compare


def recording(name: str) -> Path:
    return upstream.RECORDINGS / "queues" / f"{name}.jsonl.gz"


@pytest.fixture(scope="module")
def proofs() -> dict[str, page.Proof]:
    return {name: page.proof(recording(name), name) for name in page.SETS}


@pytest.mark.parametrize(
    ("name", "whole", "starts", "decisions"), [("classic", 28, 0.8, 0.94), ("fair", 8, 0.65, 0.86)]
)
def test_the_simulation_agrees_with_recordings(
    proofs: dict[str, page.Proof], name: str, whole: int, starts: float, decisions: float
) -> None:
    found = proofs[name]
    assert found.whole >= whole
    assert found.starts >= starts
    assert found.decisions >= decisions


@pytest.mark.parametrize(("name", "with_delays"), [("classic", 51), ("fair", 22)])
def test_with_the_delays_of_the_machine_the_simulation_agrees(
    proofs: dict[str, page.Proof], name: str, with_delays: int
) -> None:
    """If a changed rule fails here, repeat the search, which takes some minutes:

    python -m tests.products.planner.simulate_proof --search 8000
    """
    assert proofs[name].with_delays >= with_delays


def test_delays_do_not_hide_a_wrong_order_of_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the newest of two equal candidates preempted last, recordings that the delays explained differ."""
    known = delays.load()
    lines = [line for line in read_scenarios(recording("classic")) if line.id in known]
    assert all(delays.Explanation(line, known[line.id]).holds for line in lines)

    def oldest_first(workload: JobState, preemptor: JobState) -> tuple[object, ...]:
        return not workload.evicted, workload.queue is preemptor.queue, workload.priority, workload.reserved

    monkeypatch.setattr(preemption, "preemption_order", oldest_first)
    assert sum(delays.Explanation(line, known[line.id]).holds for line in lines) < len(lines) / 2


def test_the_page_has_the_current_figures(proofs: dict[str, page.Proof]) -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text(proofs.values()), "run `make simulate-proof`"


def test_the_comparison_sees_a_difference(tmp_path: Path) -> None:
    """A recording agrees with itself, and does not if one run is moved by more than the noise."""
    raw = next(read_scenarios(recording("classic"))).raw
    assert compare(raw, {"events": raw["events"], "never": raw["never"]}).agrees
    events = [
        [at + (9 if (run, what) == ("r3", "admitted") else 0), run, what, more] for at, run, what, more in raw["events"]
    ]
    assert not compare(raw, {"events": events, "never": raw["never"]}).agrees
    changed = tmp_path / "changed.jsonl.gz"
    changed.write_bytes(gzip.compress(json.dumps({**raw, "fair": True}).encode()))
    (line,) = read_scenarios(changed)
    assert line.scenario.settings.fair_sharing
