"""Measures a report of ten runs of ten thousand steps: the command, the size of its page, and the first paint.

    python -m tests.bench_report

Goals: 3 s for the command, 5 MB for the page, 1 s to the first paint. The table also has CPU seconds, because a busy
machine increases the wall time.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.products.report import report_runs

RUNS, STEPS, ROUNDS = 10, 10_000, 5
SECONDS, BYTES, PAINT_SECONDS = 3.0, 5_000_000, 1.0

Row = tuple[str, str, str, bool]


def rows() -> list[Row]:
    """Return the rows: what was measured, the median, the goal, and whether it was met. Ignores each first round."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        names = [report_runs.long_run(home / f"run-{number}", STEPS, number=number).name for number in range(RUNS)]
        page = home / "page.html"
        walls, cpus = [], []
        for _ in range(ROUNDS + 1):
            wall, cpu = _made(home, names, page)
            walls.append(wall)
            cpus.append(cpu)
        wall, cpu = statistics.median(walls[1:]), statistics.median(cpus[1:])
        paint = statistics.median(_painted(page)[1:])
        size = page.stat().st_size
    what = f"report of {RUNS} runs of {STEPS:,} steps"
    return [
        (what, f"{wall:.2f} s ({cpu:.2f} s of CPU)", f"{SECONDS:g} s", wall <= SECONDS),
        ("its page", f"{size / 1e6:.2f} MB", f"{BYTES / 1e6:g} MB", size <= BYTES),
        ("its first paint", f"{paint:.2f} s", f"{PAINT_SECONDS:g} s", paint <= PAINT_SECONDS),
    ]


def _made(home: Path, names: list[str], page: Path) -> tuple[float, float]:
    """Run the command. Returns its wall time and CPU time, in seconds."""
    before, since = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    arguments = [f"./{name}" for name in names]
    subprocess.run(
        [sys.executable, "-m", "launcher", "report", *arguments, "--out", str(page)],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - since, (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def _painted(page: Path) -> list[float]:
    """Return the seconds from the navigation to the first contentful paint, each in a new window."""
    from playwright.sync_api import sync_playwright

    from tests.browser.chromium import launch

    found = []
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for _ in range(ROUNDS + 1):
            context = browser.new_context(offline=True)
            window = context.new_page()
            window.goto(page.as_uri(), timeout=120_000)
            window.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=120_000)
            found.append(float(window.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")))
            context.close()
        browser.close()
    return [milliseconds / 1000 for milliseconds in found]


def main() -> None:
    for what, ours, goal, met in rows():
        print(f"{what:40}{ours:>28}{goal:>10}{'' if met else '  over'}")  # the table is what this command is for


if __name__ == "__main__":
    main()
