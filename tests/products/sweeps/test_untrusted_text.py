"""The display of a sweep shows text of others without control characters."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.backends.sweeps import Sweep
from launcher.cli import follow
from launcher.products.sweeps import display
from tests.cli.test_untrusted_text import HOSTILE, HOSTILE_RUN, hostile_terminal


def test_the_live_display_shows_the_text_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    view: Any
    with hostile_terminal(monkeypatch), follow.showing(display._Lines, display._Table) as view:
        view.show(Sweep("sweep", (HOSTILE_RUN,)))
        view.print_line(HOSTILE)
