"""Fixtures for Chromium under Playwright, and for reports of very different runs."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from launcher.products.report.build import build
from tests.browser.chromium import TIMEOUT_MS, launch
from tests.products.report import report_runs as runs

ODD = "<img src=x onerror=window.pwned=1>"
SPIKE = 77.5


@dataclass
class OpenPage:
    """A page in the browser, with the console messages and the requests since it was opened."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def drawn(self) -> OpenPage:
        self.page.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=TIMEOUT_MS)
        self.page.wait_for_timeout(500)  # canvases are painted in the next frame
        return self

    def js(self, code: str) -> Any:
        return self.page.evaluate(code)

    def until(self, condition: str, seconds: float = TIMEOUT_MS / 1000) -> bool:
        """Return whether the JavaScript expression becomes true in this time. A loaded machine needs seconds.

        Playwright's wait_for_function evaluates in the page, which the page's Content-Security-Policy forbids.
        """
        end = time.monotonic() + seconds
        while not self.js(condition):
            if time.monotonic() > end:
                return False
            self.page.wait_for_timeout(50)
        return True


# Playwright's event loop runs in this thread until the fixture ends, and no other event loop can run there.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@contextlib.contextmanager
def windows(browser: Browser) -> Iterator[Any]:
    """Yield a function that opens a file in a new window without network access. All windows are closed at the end."""
    contexts = []

    def open_page(path: Path, width: int = 1280, height: int = 900, scheme: Any = "light") -> OpenPage:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True, reduced_motion="reduce"
        )
        contexts.append(context)
        seen = OpenPage(context.new_page())
        seen.page.on("console", lambda message: seen.console.append(f"{message.type}: {message.text}"))
        seen.page.on("pageerror", lambda error: seen.console.append(f"error: {error}"))
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(path.as_uri(), timeout=TIMEOUT_MS)
        return seen

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def show(browser: Browser) -> Iterator[Any]:
    """A function that opens a file in a new window without network access."""
    with windows(browser) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def drawn(browser: Browser) -> Iterator[Any]:
    """A function that returns a file in a window with all of its charts, which the tests of a module share. They only
    read, or return to the first state."""
    with windows(browser) as open_page:
        yield functools.cache(lambda *window: open_page(*window).drawn())


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of runs: long (with a spike and a restart), diverged, one step, no steps, and one that failed after 50 of
    its 100 steps and has HTML in its name."""
    home = tmp_path_factory.mktemp("runs")
    long = runs.long_run(home / "long", 3000)
    lines = long.joinpath("metrics.jsonl").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if '"step": 1234,' in line)
    lines[at] = lines[at].replace('"loss": ', f'"loss": {SPIKE}, "was": ')
    long.joinpath("metrics.jsonl").write_text("\n".join(lines) + "\n")
    diverged = [
        line | {"loss": float("nan")} if line["step"] > 80 and "loss" in line else line for line in runs.steps(100)
    ]
    runs.write(home / "diverged", metrics=diverged, events=[runs.loop(runs.BEGIN)], config=runs.config("diverged"))
    runs.write(
        home / "one", metrics=runs.steps(1), events=[runs.loop(runs.BEGIN, 0, 1)], config=runs.config("one", steps=1)
    )
    runs.write(home / "none", events=[runs.loop(runs.BEGIN)], config=runs.config("none"))
    bad = {
        "event": "error",
        "time": runs.stamp(runs.BEGIN + 500),
        "message": f"</script><script>window.pwned=2</script>{ODD}",
    }
    odd = runs.config(ODD, model_name="</script><script>window.pwned=3</script>", base_config="$$\\frac{1}{2}$$")
    runs.write(
        home / ODD,
        metrics=runs.steps(50, seed=5),
        events=[runs.loop(runs.BEGIN - 5), bad],
        config=odd,
        origins={"train.model_name": f"{ODD}:3"},
        tail='{"step": 50, "lo',
    )
    return home


def report_of(folders: list[Path], target: Path) -> Path:
    target.write_text(build([str(each) for each in folders]).page, encoding="utf-8")
    return target


@pytest.fixture(scope="session")
def mixed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of all runs in `folder`."""
    found = [folder / name for name in ("long", "diverged", "one", "none", ODD)]
    return report_of(found, tmp_path_factory.mktemp("pages") / "mixed.html")


@pytest.fixture(scope="session")
def single(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_of([folder / "long"], tmp_path_factory.mktemp("pages") / "single.html")


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of four learning rates and two batch sizes."""
    home = tmp_path_factory.mktemp("swept")
    found = [runs.long_run(home / f"rate-{number}", 300, number=rate) for number, rate in enumerate((0, 2, 9, 29))]
    return report_of(found, tmp_path_factory.mktemp("pages") / "swept.html")


@pytest.fixture(scope="session")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("twenty")
    found = [
        runs.long_run(home / f"a-run-with-a-long-name-of-a-sweep-{number}", 60, number=number) for number in range(20)
    ]
    return report_of(found, tmp_path_factory.mktemp("pages") / "twenty.html")
