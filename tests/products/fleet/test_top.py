"""`launcher top` on real runs of this machine: in Textual's own test terminal, and in a pseudo-terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
from textual.widgets import DataTable, Static

from launcher.k8s.target import Target
from launcher.products.fleet.top import Top, spark
from tests.products.report import report_runs as runs

LOCAL = Target(local=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    for name, end in (("runs-now", None), ("also-runs", None), ("has-ended", runs.BEGIN + 900)):
        runs.write(
            tmp_path / "runs" / name,
            metrics=runs.steps(80),
            events=[runs.loop(runs.BEGIN)],
            config=runs.config(name),
            record=runs.record(name, runs.BEGIN, end),
        )
    return tmp_path


def names(app: Top) -> list[str]:
    table = app.query_one("#runs", DataTable)
    return [str(table.get_row_at(at)[0]) for at in range(table.row_count)]


async def until(check: Callable[[], bool], pilot: Any) -> None:
    for _ in range(600):
        await pilot.pause(0.05)
        if check():
            return
    raise AssertionError("The table does not show it.")


def test_the_runs_of_this_machine_and_the_filter(home: Path) -> None:
    async def use() -> None:
        app = Top(LOCAL)
        async with app.run_test(size=(160, 40)) as pilot:
            await pilot.press("x")  # their processes do not exist, so all have ended
            await until(lambda: len(names(app)) == 3, pilot)
            await pilot.press("/", *"ended")
            assert names(app) == ["has-ended"]
            await pilot.press("escape")
            assert len(names(app)) == 3
            await pilot.press("x")
            assert names(app) == []
            assert "0 of 3 runs" in str(app.query_one("#notes", Static).content)
            await pilot.press("e", "c")  # nothing is selected

    asyncio.run(use())


def a_run(number: int, **more: Any) -> dict[str, Any]:
    run: dict[str, Any] = {
        "namespace": "research",
        "name": f"run-{number}",
        "team": "[red]",
        "kind": "JobSet",
        "queue": "training",
    }
    run |= {"priority": "", "position": None, "step": number, "steps": 1000, "loss": 2.5, "restarts": 0}
    return run | {"state": "running", "machines": "v6e 4x4", "submitted": None, "starts": "", "reason": ""} | more


def test_the_selection_stays_on_its_run(home: Path) -> None:
    async def use() -> None:
        app = Top(LOCAL)
        async with app.run_test(size=(200, 40)) as pilot:
            await until(lambda: "made" in app.state, pilot)
            app.on_unmount()  # no later reading replaces the states below
            quota: dict[str, Any] = {
                "flavor": "v6e",
                "resource": "google.com/tpu",
                "nominal": 32.0,
                "used": 16.0,
                "borrowed": 0.0,
            }
            quota |= {"lent": 0.0, "free": 16.0}
            queue = {"name": "research", "inactive": "", "quotas": [quota], "admitted": 2, "pending": 1}
            state = {**app.state, "queues": [queue], "notes": ["A note with [brackets] and \x1b[31m."]}
            app._show(state | {"runs": [a_run(1), a_run(2), a_run(3, speed=0.69, losses=[3.0, 2.0])]})
            await pilot.press("down", "down")
            app._show(state | {"runs": [a_run(2), a_run(4, state="queued", position=1), a_run(3, loss=1.0)]})
            table = app.query_one("#runs", DataTable)
            assert names(app) == ["run-2", "run-3", "run-4"]
            assert str(table.get_row_at(table.cursor_row)[0]) == "run-3"
            assert [str(cell) for cell in table.get_row_at(2)][2] == "queued #1"
            app._show(state | {"runs": [a_run(2), a_run(4, state="queued", position=1), a_run(3, loss=0.5)]})
            assert [str(cell) for cell in table.get_row_at(1)][5] == "0.500"
            cells = app.query_one("#queues", DataTable).get_row_at(0)
            assert [str(cell) for cell in cells][3:8] == ["16", "32", "0", "0", "16"]
            assert "\x1b" not in str(app.query_one("#notes", Static).content)

    asyncio.run(use())


def test_losses_as_bars() -> None:
    assert spark([3.0, 2.0, 1.0]) == "█▅▁"
    assert spark([1.0, 1.0]) == "▁▁"
    assert spark([]) == ""


def test_keys_run_commands_in_the_terminal(home: Path) -> None:
    shell = pexpect.spawn(
        sys.executable, ["-m", "launcher", "top", "--local"], dimensions=(40, 160), encoding="utf-8", timeout=60
    )
    shell.expect("0 of 3 runs")
    shell.send("x")
    shell.expect("3 of 3 runs")
    shell.send("/")
    shell.expect("team or queue")
    shell.send("ended\r")
    shell.expect("1 of 3 runs")
    shell.send("e")
    shell.expect(r"\$ launcher explain has-ended --local")
    shell.expect("Press Enter to go back")
    shell.send("\n")
    shell.expect("ended runs")
    shell.send("c")
    shell.expect(r"Cancel this run\? \[y/N\]: ")
    shell.send("n\r")
    shell.expect("Press Enter to go back")
    shell.send("\n")
    shell.expect("ended runs")
    shell.send("q")
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 0


def test_without_a_terminal() -> None:
    output, code = pexpect.run(
        f"/bin/sh -c '{sys.executable} -m launcher top --local </dev/null'", withexitstatus=True, encoding="utf-8"
    )
    assert code == 2
    assert "needs a terminal" in output
