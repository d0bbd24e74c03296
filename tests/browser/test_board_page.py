"""`launcher board` in Chromium: real runs of this machine, and the state of a large cluster."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it ships no types
from playwright.sync_api import Browser

from launcher.k8s.target import Target
from launcher.products.fleet.board import state
from launcher.products.fleet.board.server import BoardServer
from tests.browser.chromium import TIMEOUT_MS
from tests.browser.conftest import ODD, OpenPage
from tests.products.report import report_runs as runs

pytestmark = pytest.mark.browser
LOCAL = Target(local=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    folder = tmp_path / "runs"
    for name, end in (("runs-now", None), ("has-ended", runs.BEGIN + 900)):
        runs.write(
            folder / name,
            metrics=runs.steps(80),
            events=[runs.loop(runs.BEGIN)],
            config=runs.config(name),
            record=runs.record(name, runs.BEGIN, end),
        )
    return folder


@pytest.fixture
def served() -> Iterator[Any]:
    servers: list[BoardServer] = []

    def serve(target: Target = LOCAL) -> BoardServer:
        server = BoardServer(target)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def opened(browser: Browser, url: str, width: int = 1280, scheme: Any = "light") -> OpenPage:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    seen = OpenPage(context.new_page())
    seen.page.on("console", lambda message: seen.console.append(f"{message.type}: {message.text}"))
    seen.page.on("pageerror", lambda error: seen.console.append(f"error: {error}"))
    seen.page.goto(url, timeout=TIMEOUT_MS)
    assert seen.until("document.querySelector('#count').textContent !== ''")
    return seen


def test_the_runs_of_this_machine(browser: Browser, home: Path, served: Any) -> None:
    server = served()
    seen = opened(browser, server.url)
    assert "token" not in seen.page.url
    names = "[...document.querySelectorAll('#runs tbody th')].map((each) => each.textContent)"
    seen.page.select_option("#shown", "all")
    assert sorted(seen.js(names)) == ["has-ended", "runs-now"]
    seen.page.fill("#filter", "ended")
    assert seen.js(names) == ["has-ended"]
    seen.page.click("text=report >> nth=0", timeout=TIMEOUT_MS)
    seen.page.wait_for_selector("h1", timeout=TIMEOUT_MS)
    assert "has-ended" in seen.page.inner_text("main")
    assert [line for line in seen.console if "error" in line] == []


def large_state(count: int) -> dict[str, Any]:
    """Return the state of a cluster with 10,000 chips, as Board creates it from objects that only Kueue can write."""
    states = ["running", "queued", "preempted", "succeeded", "failed"]
    rows = [
        {
            "namespace": f"team-{number % 20}",
            "name": f"run-{number}" if number else ODD,
            "team": f"team-{number % 20}",
            "kind": "job-set",
            "queue": "training",
            "priority": "normal",
            "position": number if number % 5 == 1 else None,
            "step": 10 * number,
            "steps": 20_000,
            "loss": 2.5,
            "restarts": 0,
            "state": states[number % 5],
            "machines": "2 x v6e 4x4",
            "submitted": "2026-11-27T10:00:00Z",
            "starts": "in 20 min" if number % 5 == 1 else "",
            "reason": "waits for 64 chips of v6e-4x4 that other runs hold" if number % 5 == 1 else "",
            "losses": [9.0 / (1 + at) + 2 for at in range(60)] if number % 5 == 0 else [],
            "speed": 0.69 if number % 10 == 0 else 1.02,
        }
        for number in range(count)
    ]
    quota = {"flavor": "v6e-4x4", "resource": "google.com/tpu", "nominal": 512.0, "free": 32.0}
    queues = [
        {
            "name": f"team-{number}",
            "cohort": "all",
            "inactive": "" if number else ODD,
            "quotas": [{**quota, "used": 480.0 + 4 * number, "borrowed": 0.0, "lent": 16.0}],
            "admitted": 10,
            "pending": 40,
        }
        for number in range(20)
    ]
    return {"queues": queues, "runs": rows, "notes": [f"{ODD} is left out."]}


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_a_large_cluster_is_readable_and_accessible(
    browser: Browser, served: Any, monkeypatch: pytest.MonkeyPatch, width: int, scheme: str
) -> None:
    monkeypatch.setattr(state.Board, "_read", lambda _: large_state(1000))
    seen = opened(browser, served().url, width, scheme)
    assert seen.js("document.documentElement.scrollWidth <= innerWidth")
    assert seen.js("window.pwned") is None
    assert seen.js("document.querySelectorAll('#runs tbody tr').length") == 500
    assert "500 are shown" in seen.page.inner_text("#count")
    # A few rows of each state, because axe needs a tenth of a second for a row.
    seen.page.select_option("#shown", "all")
    seen.page.fill("#filter", "run-10")
    states = seen.js("[...document.querySelectorAll('#runs tbody tr')].map((row) => row.children[2].className)")
    assert (len(states), len(set(states))) == (11, 5)
    # axe's own levels are minor, moderate, serious and critical.
    violations = Axe().run(seen.page).response["violations"]
    assert [(each["id"], each["impact"]) for each in violations if each["impact"] in ("serious", "critical")] == []
    assert [line for line in seen.console if "error" in line] == []


def test_a_changed_state_appears_by_itself(browser: Browser, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LEAST_PAUSE", 1.0)
    current = large_state(3)
    monkeypatch.setattr(state.Board, "_read", lambda _: json.loads(json.dumps(current)))
    seen = opened(browser, served().url)
    current["runs"][0]["name"] = "renamed"
    assert seen.until("document.querySelector('#runs tbody').textContent.includes('renamed')")


def test_an_unwatched_board_reads_nothing(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LEAST_PAUSE", 0.05)
    monkeypatch.setattr(state, "_UNWATCHED", 0.3)
    readings: list[float] = []

    def read(_: Any) -> dict[str, Any]:
        readings.append(time.monotonic())
        return large_state(1)

    monkeypatch.setattr(state.Board, "_read", read)
    board = state.Board(LOCAL)
    board.text()
    time.sleep(1.0)
    count = len(readings)
    time.sleep(0.5)
    assert len(readings) == count > 1
    board.text()
    time.sleep(0.2)
    assert len(readings) > count
