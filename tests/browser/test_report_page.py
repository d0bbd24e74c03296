"""The page of `launcher report` in Chromium: opened from a file, without a network, narrow and wide, light and dark."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import ODD, SPIKE, OpenPage

pytestmark = pytest.mark.browser

Show = Callable[..., OpenPage]

# Bokeh draws on canvases inside shadow roots, which querySelectorAll does not enter.
DEEP = """
const deep = (root, wanted) => [...root.querySelectorAll("*")].flatMap((each) =>
  [...(each.matches(wanted) ? [each] : []), ...(each.shadowRoot ? deep(each.shadowRoot, wanted) : [])]);
"""
INKS = (
    "(() => {"
    + DEEP
    + """
return Object.fromEntries([...document.querySelectorAll("figure")].map((figure) => {
  const inks = new Set();
  for (const canvas of deep(figure, "canvas")) {
    if (!canvas.width || !canvas.height) continue;
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    for (let at = 0; at < data.length; at += 4)
      if (data[at + 3] > 250) inks.add((data[at] << 16) + (data[at + 1] << 8) + data[at + 2]);
  }
  return [figure.id, [...inks]];
})); })()"""
)
SOURCES = """
Object.fromEntries(Bokeh.documents[0].roots().map((plot) => [plot.id, plot.renderers
  .filter((each) => each.glyph.type === "Line")
  .map((each) => ({name: each.name, x: [...each.data_source.data.x], y: [...each.data_source.data.y]}))]))
"""


def rgb(colour: str) -> int:
    return int(colour.lstrip("#"), 16)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (768, "dark"), (1920, "light")])
def test_it_is_drawn_from_a_file_without_a_network(show: Show, mixed: Path, width: int, scheme: str) -> None:
    seen = show(mixed, width, 900, scheme).drawn()
    assert [text for text in seen.console if not text.startswith("log: [bokeh")] == []
    assert seen.requests == [mixed.as_uri()]
    assert seen.js("document.documentElement.scrollWidth <= innerWidth")
    first = rgb("#0072b2" if scheme == "light" else "#56b4e9")
    inks = seen.js(INKS)
    assert len(inks) == 9
    for chart, found in inks.items():
        wanted = rgb({"light": "#00815e", "dark": "#2dc79c"}[scheme]) if chart == "chart-timeline" else first
        assert wanted in found, chart


@pytest.mark.parametrize("width", [360, 1920])
def test_one_run_and_twenty_fit(show: Show, single: Path, twenty: Path, width: int) -> None:
    for page in (single, twenty):
        seen = show(page, width).drawn()
        assert seen.js("document.documentElement.scrollWidth <= innerWidth")
        assert [text for text in seen.console if not text.startswith("log: [bokeh")] == []
    dashes = seen.js(
        "[...new Set([...document.querySelectorAll('.legend line')].map((each) => each.className.baseVal))]"
    )
    assert len(dashes) == 20  # each run has its own line style


def test_long_names_leave_the_timeline_its_width(show: Show, twenty: Path) -> None:
    seen = show(twenty, 360).drawn()
    rows = """(() => { const plot = Bokeh.documents[0].roots().find((each) => each.y_range.type === "FactorRange");
      return Bokeh.index.get_by_id(plot.id).frame.bbox.height / plot.y_range.factors.length; })()"""
    assert seen.js(rows) > 26  # room for a bar and the name above it
    frame = """(() => { const plot = Bokeh.documents[0].roots().find((each) => each.y_range.type === "FactorRange");
      return Bokeh.index.get_by_id(plot.id).frame.bbox.width; })()"""
    assert seen.js(frame) > 250
    seen.page.set_viewport_size({"width": 1280, "height": 900})
    seen.page.wait_for_timeout(600)
    assert seen.js("Bokeh.documents[0].roots().flatMap((plot) => plot.left).every((axis) => axis.visible)")


def test_the_table_matches_the_data(show: Show, mixed: Path, folder: Path) -> None:
    seen = show(mixed)
    lines = [json.loads(line) for line in (folder / "long" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    rows = "[...document.querySelectorAll('.summary tbody tr')]"
    cell = rows + ".map((row) => row.querySelector('[data-key=%s]').textContent)"
    assert seen.js(cell % "loss")[0] == f"{steps[-1]['loss']:.4f}"
    assert seen.js(cell % "eval_loss")[0] == f"{min(line['eval_loss'] for line in lines if 'eval_loss' in line):.4f}"
    rate = statistics.median(line["tokens_per_second_per_device"] for line in steps)
    assert seen.js(cell % "tokens_per_second_per_device")[0] == f"{rate:,.1f}"
    assert seen.js(cell % "steps") == ["3,000", "100", "1", "0 of 100", "50 of 100"]
    assert "not finite at 81" in seen.js(cell % "loss")[1]
    assert seen.js(cell % "state") == ["succeeded", "succeeded", "succeeded", "unknown", "failed"]


def test_the_lines_are_the_data_and_spikes_are_kept(show: Show, mixed: Path, folder: Path) -> None:
    seen = show(mixed).drawn()
    plots: dict[str, list[dict[str, Any]]] = seen.js(SOURCES)
    loss = next(iter(plots.values()))[0]
    written = {
        line["step"]: line["loss"]
        for line in map(json.loads, (folder / "long" / "metrics.jsonl").read_text().splitlines())
        if "loss" in line
    }
    assert loss["name"] == "long"
    assert max(loss["y"]) == SPIKE
    assert loss["x"][loss["y"].index(SPIKE)] == 1234
    assert len(loss["x"]) < len(written)
    for step, value in zip(loss["x"], loss["y"], strict=True):
        assert value == pytest.approx(written[step], rel=1e-6)


def test_text_in_a_run_is_never_executed(show: Show, mixed: Path) -> None:
    seen = show(mixed).drawn()
    # The browser builds the tooltips, so they are checked, too: first over the run's bar in the timeline.
    hover(seen, "timeline", "training", ODD)
    assert ODD in tooltips(seen)
    hover_line(seen, ODD)
    assert ODD in tooltips(seen)
    assert seen.js("window.pwned") is None
    assert seen.js("document.images.length") == 0
    assert ODD in seen.js("document.querySelector('.summary').textContent")
    assert "</script><script>window.pwned=2</script>" in seen.js("document.querySelector('#run-4').textContent")


def hover(seen: OpenPage, chart: str, phase: str, run: str) -> None:
    """Move the mouse to the middle of a run's bar in the timeline."""
    seen.js(f"document.querySelector('#chart-{chart}').scrollIntoView()")
    where = seen.js(
        f"""(() => {{
      const plot = Bokeh.documents[0].roots().find((each) => each.y_range.type === "FactorRange");
      const view = Bokeh.index.get_by_id(plot.id);
      const data = plot.renderers.find((each) => each.name === {json.dumps(phase)}).data_source.data;
      const at = data.y.indexOf({json.dumps(run)});
      const box = document.querySelector("#chart-{chart} .plot").getBoundingClientRect();
      const x = view.frame.x_scale.compute((data.left[at] + data.right[at]) / 2);
      const y = view.frame.y_scale.compute(data.y[at]);
      return [box.x + x, box.y + y]; }})()"""
    )
    point(seen, where)


def hover_line(seen: OpenPage, run: str) -> None:
    """Move the mouse to the last step of a run's loss. No other run has a point there."""
    seen.js("document.querySelector('#chart-loss').scrollIntoView({block: 'center'})")
    where = seen.js(
        f"""(() => {{
      const plot = Bokeh.documents[0].roots()[0];
      const view = Bokeh.index.get_by_id(plot.id);
      const data = plot.renderers.find((each) => each.name === {json.dumps(run)}).data_source.data;
      const box = document.querySelector("#chart-loss .plot").getBoundingClientRect();
      const end = data.x.length - 1;
      return [box.x + view.frame.x_scale.compute(data.x[end]), box.y + view.frame.y_scale.compute(data.y[end])];
    }})()"""
    )
    point(seen, where)


def point(seen: OpenPage, where: list[float]) -> None:
    seen.page.mouse.move(where[0] - 1, where[1])
    seen.page.mouse.move(*where)
    seen.page.wait_for_timeout(400)


def tooltips(seen: OpenPage) -> str:
    texts = "deep(document, '.bk-Tooltip').map((each) => each.shadowRoot.textContent).join(' | ')"
    return str(seen.js(f"(() => {{ {DEEP} return {texts}; }})()"))


def test_a_tooltip_describes_the_bar_below_the_mouse(show: Show, mixed: Path) -> None:
    seen = show(mixed).drawn()
    hover(seen, "timeline", "restarting", "long")
    assert "restarting" in tooltips(seen)
    assert "long" in tooltips(seen)


def test_the_legend_hides_a_run_everywhere(show: Show, mixed: Path) -> None:
    seen = show(mixed).drawn()
    visible = """Bokeh.documents[0].roots().flatMap((plot) => plot.renderers)
      .filter((each) => each.name === "long").map((each) => each.visible)"""
    assert all(seen.js(visible))
    seen.page.locator(".legend input").first.uncheck()
    assert not any(seen.js(visible))
    seen.page.get_by_role("button", name="all").click()
    assert all(seen.js(visible))


def test_zooming_one_chart_zooms_the_others(show: Show, mixed: Path) -> None:
    seen = show(mixed).drawn()
    seen.js("document.querySelector('#chart-loss').scrollIntoView({block: 'center'})")
    box = seen.page.locator("#chart-loss .plot").bounding_box()
    assert box
    before = seen.js("Bokeh.documents[0].roots()[1].x_range.end")
    seen.page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 100)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 200, steps=4)
    seen.page.mouse.up()
    seen.page.wait_for_timeout(400)
    assert seen.js("Bokeh.documents[0].roots()[1].x_range.end") < 0.8 * before


def test_a_page_that_is_open_follows_the_scheme(show: Show, mixed: Path) -> None:
    seen = show(mixed, scheme="light").drawn()
    assert seen.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    seen.page.emulate_media(color_scheme="dark")
    seen.page.wait_for_timeout(600)
    assert seen.js("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert rgb("#56b4e9") in seen.js(INKS)["chart-loss"]


def test_text_is_painted_before_the_charts(show: Show, mixed: Path) -> None:
    seen = show(mixed).drawn()
    first = seen.js("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert first < seen.js("performance.getEntriesByName('charts-drawn')[0].startTime")


def test_every_chart_has_a_description(show: Show, mixed: Path) -> None:
    texts = show(mixed).js("[...document.querySelectorAll('figure .unseen')].map((each) => each.textContent)")
    assert len(texts) == 9
    assert "long from" in texts[0]
    assert all(text.strip() for text in texts)
