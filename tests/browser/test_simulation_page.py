"""The page of `launcher simulate --html` in Chromium: slices and waiting runs, before and after a change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.products.planner.simulation.comparison import Comparison
from launcher.products.planner.simulation.page import page
from tests.browser.conftest import ODD, OpenPage
from tests.browser.test_report_page import INKS, rgb
from tests.products.planner.test_simulation_trace import BUSY, simulated

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_slices_and_waiting_runs_are_drawn(
    show: Callable[..., OpenPage], tmp_path: Path, width: int, scheme: str
) -> None:
    before, after = simulated(tmp_path, BUSY), simulated(tmp_path, BUSY, None, "v6e:30m-1h")
    file = tmp_path / "simulation.html"
    file.write_text(page(Comparison(before, after, [f"{ODD} is not simulated."]), ODD), encoding="utf-8")
    seen = show(file, width, 900, scheme).drawn()
    assert [text for text in seen.console if not text.startswith("log: [bokeh")] == []
    assert seen.requests == [file.as_uri()]
    assert seen.js("window.pwned") is None
    assert seen.js("document.documentElement.scrollWidth <= innerWidth")
    titles = seen.js("[...document.querySelectorAll('figure h3')].map((each) => each.textContent)")
    assert titles == ["v6e before", "v6e after", "Waiting runs before", "Waiting runs after"]
    product, research = map(rgb, ("#0072b2", "#c44e00") if scheme == "light" else ("#56b4e9", "#ff9448"))
    inks = seen.js(INKS)
    assert all(product in found for found in inks.values())  # its run c never starts
    assert research in inks["chart-gantt-0-0"]
    assert research in inks["chart-gantt-0-1"]
    # The same scale before and after: the heights can be compared.
    heights = seen.js("Bokeh.documents[0].roots().map((plot) => [plot.height, plot.y_range.start, plot.y_range.end])")
    assert heights[0] == heights[1]
    assert heights[2] == heights[3]
    hidden = (
        "document.querySelector('.legend input').click(); Bokeh.documents[0].roots().flatMap((plot) => plot.renderers)"
    )
    visible = seen.js(f"{hidden}.filter((each) => each.name === 'product').map((each) => each.visible)")
    assert visible and not any(visible)
    rows = seen.js("[...document.querySelectorAll('#figures tbody tr')].map((each) => each.innerText.split('\\t'))")
    assert ["v6e", "quota", "128 chips", "128 chips", "="] in [[cell.strip() for cell in row] for row in rows]
    # A team is named once, next to the rows of its figures; a number is on one line.
    names = seen.js("[...document.querySelectorAll('#figures tbody th')].map((each) => [each.innerText, each.rowSpan])")
    assert [name for name, _ in names] == ["product", "research", "v6e", "all"]
    assert sum(count for _, count in names) == len(rows)
    lines = """[...document.querySelectorAll('td.number')].map((cell) => {
      const text = document.createRange(); text.selectNodeContents(cell); return text.getClientRects().length; })"""
    assert set(seen.js(lines)) == {1}
