"""Compare the simulation with recordings.

    python -m tests.products.planner.simulate_proof [FILE.jsonl.gz… [--id ID] [-v]]

Without a file, write docs/reference/simulate-proof.md from the recordings in tests/upstream (make simulate-proof). With
--search, search first for the delays that explain the recordings which differ, and write them to delays.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from launcher.products.planner.scheduler.simulation import simulate
from launcher.products.planner.simulation.event_lines import as_line
from launcher.products.planner.simulation.scenario_file import read_scenarios
from tests import upstream
from tests.products.planner.simulate_proof import delays, page
from tests.products.planner.simulate_proof.agreement import CLOSE, compare

_SEEDS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--id", default="", help="only this scenario")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every difference, not only the first")
    parser.add_argument("--search", type=int, default=0, metavar="N", help="simulations for each search of delays")
    options = parser.parse_args()
    if not options.files:
        folder = upstream.RECORDINGS / "queues"
        if options.search:
            search([folder / f"{name}.jsonl.gz" for name in page.SETS], options.search)
        page.PAGE.write_text(
            page.text(page.proof(folder / f"{name}.jsonl.gz", name) for name in page.SETS), encoding="utf-8"
        )
        print(f"Written: {page.PAGE}")
    for path in options.files:
        show(path, options.id, verbose=options.verbose)


def search(paths: Iterable[Path], most: int) -> None:
    """Search for the delays of each scenario that the known delays do not explain."""
    found = delays.load()
    for line in (line for path in paths for line in read_scenarios(path)):
        explanation = delays.Explanation(line, found.pop(line.id, {}))
        explanation.check()
        for seed in range(_SEEDS):
            if explanation.holds:
                break
            explanation = delays.Explanation(line)
            explanation.search(most=most, seed=seed)
        if explanation.holds and explanation.delays:
            found[line.id] = explanation.delays
        result = f"{len(explanation.delays)} delays" if explanation.holds else f"differs at {explanation.difference}"
        print(f"{line.id}: {result}", flush=True)
        delays.save(found)


def show(path: Path, only: str, *, verbose: bool) -> None:
    """Print the differences of each scenario of a file, and the sums."""
    found = [
        compare(line.raw, as_line(line.id, line.scenario, simulate(line.scenario)))
        for line in read_scenarios(path)
        if only in ("", line.id)
    ]
    for each in found:
        for sentence in each.differences[: None if verbose else 1]:
            print(f"{each.scenario}: {sentence}")
    same = sum(each.agrees for each in found)
    starts, close = sum(each.admissions for each in found), sum(each.close_starts for each in found)
    print(
        f"{path.name}: {same} of {len(found)} scenarios agree; "
        f"{close} of {starts} starts are within {CLOSE:g} s ({close / max(1, starts):.1%})"
    )


if __name__ == "__main__":
    main()
