"""The progress of a compile on stderr. tests/products/planner/cli/test_forecast.py compiles."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from launcher.cli import follow
from launcher.products.planner.cli import forecast_progress
from tests.cli.test_untrusted_text import HOSTILE, Terminal, assert_harmless


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with forecast_progress.shown() as view:
        view.phase("importing")  # before the first compile there is nothing to show
        view.print_line("The answer is cached.")
        view.begin("demo on v6e 4x4")
        for phase in ("importing", "shaping", "compiling", "reading", "waiting"):
            view.phase(phase)
        view.begin("demo on v6e 8x8")
        view.print_line("The cached forecast is damaged.")
    assert capsys.readouterr().err.splitlines() == [
        "The answer is cached.",
        "Compiling demo on v6e 4x4: this takes half a minute or more; the result is cached.",
        "demo on v6e 4x4: compiling.",
        "demo on v6e 4x4: waiting for another forecast, which compiles the same program.",
        "Compiling demo on v6e 8x8: this takes half a minute or more; the result is cached.",
        "The cached forecast is damaged.",
    ]


@pytest.mark.parametrize("width", [20, 100])
def test_one_line_on_a_terminal(width: int) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, _environ={})
    line = forecast_progress._Line(console)
    with line.live:
        line.begin("demo[1] on v6e 4x4")  # in rich's own markup, [1] would be a style
        line.phase("compiling")
        line.live.refresh()
        line.print_line("The cached forecast of demo[1] is damaged, so it is computed again.")
        line.phase("a phase of a later version")
    shown = screen.getvalue()
    assert "The cached forecast of demo[1] is damaged, so it is computed again.\n" in shown.replace("\r", "")
    assert ("demo[1] on v6e 4x4  0:00  compiling" if width == 100 else "demo[1] on v6e 4x4 …") in shown
    with console.capture() as after:
        console.print(line)
    assert width == 20 or "a phase of a later version" in after.get()


def test_the_line_has_no_control_characters_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    with follow.showing(forecast_progress._Lines, forecast_progress._Line) as view:
        view.begin(HOSTILE)
        view.print_line(HOSTILE)
    assert_harmless(terminal)
