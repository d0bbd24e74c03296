"""Compare the simulation with recordings: python -m tests.simulate_proof FILE.jsonl.gz… [--id ID] [-v]."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from launcher.k8s.kueue.scheduler.simulation import simulate
from launcher.simulation.event_lines import as_line
from launcher.simulation.scenario_file import read_scenarios
from tests.simulate_proof.agreement import CLOSE, Agreement, compare


def agreements(path: Path, only: str = "") -> Iterator[Agreement]:
    """Yield the agreement of each scenario of a file."""
    for line in read_scenarios(path):
        if only in ("", line.id):
            yield compare(line.raw, as_line(line.id, line.scenario, simulate(line.scenario)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--id", default="", help="only this scenario")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every difference, not only the first")
    options = parser.parse_args()
    for path in options.files:
        found = list(agreements(path, options.id))
        for each in found:
            for sentence in each.differences[: None if options.verbose else 1]:
                print(f"{each.scenario}: {sentence}")
        same = sum(each.agrees for each in found)
        starts, close = sum(each.admissions for each in found), sum(each.close_starts for each in found)
        print(
            f"{path.name}: {same} of {len(found)} scenarios agree; "
            f"{close} of {starts} starts are within {CLOSE:g} s ({close / max(1, starts):.1%})"
        )


if __name__ == "__main__":
    main()
