"""A table of the coverage of each package. coverage's own report has one line for each of 250 files."""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import coverage

MEASURED = "COVERAGE_PROCESS_CONFIG"
"""The variable that coverage sets while it measures. With it, each new Python process measures itself."""

_COUNTS = ("num_statements", "missing_lines", "num_branches", "missing_branches")


def unmeasured(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for processes that start Ray. With coverage, Ray's workers take four times as long."""
    return {name: value for name, value in environment.items() if name != MEASURED}


def table(measured: coverage.Coverage) -> list[str]:
    """Return the lines of the table, from combined coverage data."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        measured.json_report(outfile=str(report), ignore_errors=True)
        files: dict[str, Any] = json.loads(report.read_text())["files"]
    return rows({name: file["summary"] for name, file in files.items()})


def rows(files: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for each package and one for all: statements, branches, and the share of both that was reached."""
    packages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, counts in files.items():
        for package in (str(PurePath(name).parent), "all"):
            packages[package].update({count: counts[count] for count in _COUNTS})
    lines = [f"{'package':<32}{'lines':>8}{'missed':>8}{'branches':>10}{'missed':>8}{'reached':>9}"]
    for package, counts in sorted(packages.items(), key=lambda item: (item[0] == "all", item[0])):
        numbers = [counts[count] for count in _COUNTS]
        reached = 1 - (numbers[1] + numbers[3]) / max(1, numbers[0] + numbers[2])
        lines.append(f"{package:<32}{numbers[0]:>8}{numbers[1]:>8}{numbers[2]:>10}{numbers[3]:>8}{reached:>8.1%}")
    return lines
