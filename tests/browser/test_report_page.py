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
    assert len(inks) == 10
    for chart, found in inks.items():
        wanted = rgb({"light": "#00815e", "dark": "#2dc79c"}[scheme]) if chart == "chart-timeline" else first
        assert wanted in found, chart


@pytest.mark.parametrize("width", [360, 1920])
def test_one_run_and_twenty_fit(drawn: Show, single: Path, twenty: Path, width: int) -> None:
    for page in (single, twenty):
        seen = drawn(page, width)
        assert seen.js("document.documentElement.scrollWidth <= innerWidth")
        assert [text for text in seen.console if not text.startswith("log: [bokeh")] == []
    dashes = seen.js(
        "[...new Set([...document.querySelectorAll('.legend line')].map((each) => each.className.baseVal))]"
    )
    assert len(dashes) == 20  # each run has its own line style


def test_long_names_leave_the_timeline_its_width(drawn: Show, twenty: Path) -> None:
    seen = drawn(twenty, 360)
    rows = """(() => { const plot = Bokeh.documents[0].roots().find((each) => each.y_range.type === "FactorRange");
      return Bokeh.index.get_by_id(plot.id).frame.bbox.height / plot.y_range.factors.length; })()"""
    assert seen.js(rows) > 26  # room for a bar and the name above it
    frame = """(() => { const plot = Bokeh.documents[0].roots().find((each) => each.y_range.type === "FactorRange");
      return Bokeh.index.get_by_id(plot.id).frame.bbox.width; })()"""
    assert seen.js(frame) > 250
    seen.page.set_viewport_size({"width": 1280, "height": 900})
    assert seen.until("Bokeh.documents[0].roots().flatMap((plot) => plot.left).every((axis) => axis.visible)")
    seen.page.set_viewport_size({"width": 360, "height": 900})
    assert seen.until(f"{frame} > 250 && {frame} < 360")


def test_the_table_matches_the_data(drawn: Show, mixed: Path, folder: Path) -> None:
    seen = drawn(mixed)
    lines = [json.loads(line) for line in (folder / "long" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    rows = "[...document.querySelectorAll('.summary tbody tr')]"
    cell = rows + ".map((row) => row.querySelector('[data-key=%s]').textContent)"
    assert seen.js(cell % "loss")[0] == f"{steps[-1]['loss']:.4f}"
    assert seen.js(cell % "eval_loss")[0] == f"{min(line['eval_loss'] for line in lines if 'eval_loss' in line):.4f}"
    rate = statistics.median(line["tokens_per_second_per_device"] for line in steps)
    assert seen.js(cell % "tokens_per_second_per_device")[0] == f"{rate:,.1f}"
    assert seen.js(cell % "steps") == ["3,000", "100", "1", "0 of 100", "50 of 100"]
    assert "not finite at step 82" in seen.js(cell % "loss")[1]
    assert seen.js(cell % "state") == ["succeeded", "succeeded", "succeeded", "unknown", "failed"]


def test_the_lines_are_the_data_and_spikes_are_kept(drawn: Show, mixed: Path, folder: Path) -> None:
    seen = drawn(mixed)
    plots: dict[str, list[dict[str, Any]]] = seen.js(SOURCES)
    loss = next(iter(plots.values()))[0]
    written = {
        line["step"] + 1: line["loss"]
        for line in map(json.loads, (folder / "long" / "metrics.jsonl").read_text().splitlines())
        if "loss" in line
    }
    assert loss["name"] == "long"
    assert max(loss["y"]) == SPIKE
    assert loss["x"][loss["y"].index(SPIKE)] == 1235
    assert len(loss["x"]) < len(written)
    for step, value in zip(loss["x"], loss["y"], strict=True):
        assert value == pytest.approx(written[step], rel=1e-6)


def test_text_in_a_run_is_never_executed(drawn: Show, mixed: Path) -> None:
    seen = drawn(mixed)
    # The browser builds the tooltips, so they are checked, too: first over the run's bar in the timeline.
    hover(seen, "timeline", "training", ODD)
    assert ODD in tooltips(seen, "training")
    hover_line(seen, ODD)
    assert ODD in tooltips(seen, "step")
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


TOOLTIPS = f"(() => {{ {DEEP} return deep(document, '.bk-Tooltip').map((each) => each.shadowRoot.textContent); }})()"


def tooltips(seen: OpenPage, text: str) -> str:
    """Return the tooltips, as soon as one of them contains the text."""
    assert seen.until(f"{TOOLTIPS}.join(' | ').includes({json.dumps(text)})"), seen.js(TOOLTIPS)
    return str(seen.js(f"{TOOLTIPS}.join(' | ')"))


def test_a_tooltip_describes_the_bar_below_the_mouse(drawn: Show, mixed: Path) -> None:
    seen = drawn(mixed)
    hover(seen, "timeline", "restarting", "long")
    assert "long" in tooltips(seen, "restarting")


def test_the_legend_hides_a_run_everywhere(drawn: Show, mixed: Path) -> None:
    seen = drawn(mixed)
    visible = """Bokeh.documents[0].roots().flatMap((plot) => plot.renderers)
      .filter((each) => each.name === "long" && !each.tags.includes("off")).map((each) => each.visible)"""
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
    end = "Bokeh.documents[0].roots()[1].x_range.end"
    before = seen.js(end)
    for _ in range(10):
        seen.page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 100)
        seen.page.mouse.down()
        seen.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 200, steps=4)
        seen.page.mouse.up()
        # If 300 ms pass before the first move, Bokeh sees a press and not a drag. So drag again, as a person does.
        if seen.until(f"{end} < {before}", seconds=2):
            break
    assert seen.js(end) < 0.8 * before


def test_a_page_that_is_open_follows_the_scheme(show: Show, mixed: Path) -> None:
    seen = show(mixed, scheme="light").drawn()
    assert seen.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    seen.page.emulate_media(color_scheme="dark")
    assert seen.until("getComputedStyle(document.body).backgroundColor === 'rgb(20, 23, 27)'")
    assert seen.until(f"({INKS})['chart-loss'].includes({rgb('#56b4e9')})")


def test_text_is_painted_before_the_charts(drawn: Show, mixed: Path) -> None:
    seen = drawn(mixed)
    first = seen.js("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert first < seen.js("performance.getEntriesByName('charts-drawn')[0].startTime")


def test_every_chart_has_a_description(drawn: Show, mixed: Path) -> None:
    texts = drawn(mixed).js("[...document.querySelectorAll('figure .unseen')].map((each) => each.textContent)")
    assert len(texts) == 10
    assert "long from" in texts[0]
    assert all(text.strip() for text in texts)


def chart(key: str) -> str:
    """Return the expression of a chart's model."""
    roots = "JSON.parse(document.getElementById('charts-data').textContent).roots"
    return f"Bokeh.documents[0].get_model_by_id({roots}['{key}'])"


def scale(key: str) -> str:
    return f"Bokeh.index.get_by_id({chart(key)}.id).frame"


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_the_loss_has_a_log_scale_by_keyboard(drawn: Show, swept: Path, width: int, scheme: str) -> None:
    seen = drawn(swept, width, 900, scheme)
    assert seen.js("document.documentElement.scrollWidth <= innerWidth")
    # The height of 8 between 4 and 12: halfway on a linear axis, above it on a logarithmic one.
    middle = f"""(() => {{ const y = {scale("loss")}.y_scale;
      return (y.compute(8) - y.compute(4)) / (y.compute(12) - y.compute(4)); }})()"""
    assert seen.js(middle) == pytest.approx(0.5, abs=0.001)
    seen.page.get_by_label("log scale").first.focus()
    seen.page.keyboard.press("Space")
    assert seen.until(f"Math.abs({middle} - Math.log(2) / Math.log(3)) < 0.001")
    # The range fits the data again, and the line of the run with the lowest loss ends inside it.
    inside = f"""(() => {{ const plot = {chart("loss")}, y = plot.y_range;
      return plot.renderers.every((each) => {{ const last = each.data_source.data.y.at(-1);
        return y.start < last && last < y.end; }}); }})()"""
    assert seen.until(inside)
    seen.page.keyboard.press("Space")
    assert seen.until(f"Math.abs({middle} - 0.5) < 0.001")
    assert [text for text in seen.console if not text.startswith("log: [bokeh")] == []


def test_smoothing_shows_the_average_over_the_faint_line(drawn: Show, swept: Path) -> None:
    seen = drawn(swept, 1280, 900, "light")
    lines = f"""{chart("loss")}.renderers.map((each) => [each.tags.includes("smooth"), each.visible,
      each.glyph.line_alpha.value ?? each.glyph.line_alpha])"""
    assert seen.js(lines) == [[False, True, 1], [True, False, 1]] * 4
    seen.page.locator("#chart-loss [data-smooth]").focus()
    seen.page.keyboard.press("ArrowDown")
    seen.page.keyboard.press("ArrowDown")
    assert seen.until(f"{chart('loss')}.renderers[1].visible")
    assert seen.js(lines) == [[False, True, 0.25], [True, True, 1]] * 4
    rough = """([...values]) => values.slice(1).reduce((sum, value, at) => sum + Math.abs(value - values[at]), 0)"""
    data = f"{chart('loss')}.renderers[1].data_source.data"
    assert seen.js(f"({rough})({data}.smooth2) < 0.6 * ({rough})({data}.y)")
    assert seen.js(f"{chart('loss')}.renderers[1].glyph.y.field") == "smooth2"
    # The legend hides both lines of a run, and without smoothing the second line stays hidden.
    seen.page.locator(".legend input").first.uncheck()
    assert [each[1] for each in seen.js(lines)][:4] == [False, False, True, True]
    seen.page.locator("#chart-loss [data-smooth]").select_option("")
    seen.page.get_by_role("button", name="all").click()
    assert seen.js(lines) == [[False, True, 1], [True, False, 1]] * 4


def test_a_sweep_has_its_values_against_the_loss(drawn: Show, swept: Path) -> None:
    seen = drawn(swept, 390, 900, "dark")
    assert seen.js("[...document.querySelectorAll('figure h3')].map((each) => each.textContent)")[2:4] == [
        "Loss by train.learning_rate",
        "Loss by train.per_device_batch_size",
    ]
    points = f"""{chart("value-0")}.renderers.map((each) => [each.name, each.data_source.data.x[0],
      each.data_source.data[each.glyph.y.field][0]])"""
    last = seen.js(points)
    assert [name for name, _, _ in last] == ["rate-0", "rate-1", "rate-2", "rate-3"]
    assert [x for _, x, _ in last] == pytest.approx([1e-4, 3e-4, 1e-3, 3e-3])
    assert seen.js(f"[{chart('value-0')}.x_scale.type, {chart('value-1')}.x_scale.type]") == ["LogScale", "LinearScale"]
    seen.page.locator("#chart-value-0 [data-y]").select_option(label="lowest loss")
    assert seen.until(f"{chart('value-0')}.renderers[0].glyph.y.field === 'y1'")
    assert all(low <= end for (_, _, low), (_, _, end) in zip(seen.js(points), last, strict=True))


def test_axes_of_small_numbers_have_exponents(drawn: Show, swept: Path) -> None:
    seen = drawn(swept, 1280, 900, "light")
    labels = """((axis, ticks) => axis.formatter.doFormat(ticks, {}))"""
    assert seen.js(f"{labels}({chart('learning_rate')}.left[0], [0, 5e-5, 3.0000000000000003e-4, 0.01])") == [
        "0",
        "5e-5",
        "3e-4",
        "1e-2",
    ]
    assert seen.js(f"{labels}({chart('value-0')}.below[0], {chart('value-0')}.below[0].ticker.ticks)") == [
        "1e-4",
        "3e-4",
        "1e-3",
        "3e-3",
    ]


def test_goodput_is_explained_below_the_timeline(drawn: Show, swept: Path) -> None:
    seen = drawn(swept, 390, 900, "dark")
    text = seen.page.locator("#chart-timeline .footnote p")
    assert not text.is_visible()
    seen.page.locator("#chart-timeline .footnote summary").focus()
    seen.page.keyboard.press("Enter")
    assert seen.until("document.querySelector('#chart-timeline .footnote').open")
    assert "the run's median step" in text.inner_text()
