"""The charts of a report. Only this module uses Bokeh.

The charts contain only data. The page (page.js) sets the colours of axes and so on, because it knows whether the theme
is light or dark. A model of a run has the tag "run N", which the page uses to show, hide and colour it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from bokeh.document import Document
from bokeh.models import (
    AllIndices,
    BasicTicker,
    BasicTickFormatter,
    BoxZoomTool,
    CategoricalAxis,
    CategoricalScale,
    CDSView,
    ColumnDataSource,
    DataRange1d,
    FactorRange,
    FixedTicker,
    Grid,
    HBar,
    HoverTool,
    Line,
    LinearAxis,
    LogScale,
    NumeralTickFormatter,
    PanTool,
    Plot,
    ResetTool,
    SaveTool,
    Scatter,
    Text,
    Toolbar,
    UnionRenderers,
    WheelZoomTool,
)
from bokeh.resources import Resources

from launcher.formatting import duration
from launcher.products.report.compare import swept_numbers
from launcher.products.report.model import (
    ACCURACY,
    COUNTED,
    EVAL_LOSS,
    GRAD_NORM,
    LEARNING_RATE,
    LOSS,
    MARGIN,
    MFU,
    STEP_SECONDS,
    TFLOPS,
    TOKENS,
    Phase,
    RunData,
    Series,
)
from launcher.products.report.sampling import sampled, smoothed

# Maximum points of all lines of one chart together, for a page of a few megabytes and a responsive canvas.
_POINTS = 40_000
_MOST_BUCKETS, _FEWEST_BUCKETS = 1_000, 400
_BINS = 60
_HEIGHT = 300
_MOST_GAPS = 1_000
_SMOOTH = {"smooth1": ("0.9", 0.9), "smooth2": ("0.99", 0.99)}
"""The weights of the smoothed lines, by the column of the data."""
_LOG_FACTOR = 20
"""Values of a sweep whose factor is greater have a logarithmic axis."""
_MOST_KEYS = 6
_GOODPUT = (
    "How goodput is measured",
    "Goodput is the share of the time with chips that went into steps that count: the seconds of the steps in "
    "metrics.jsonl, each step once, divided by the seconds in which the run held its chips, from its first start "
    "to its end. The rest of that time is for starting, compiling, evaluating, writing checkpoints, and steps "
    "that were lost to a failure. The first step after each start counts as the run's median step, because it "
    "includes the compilation. Time in a queue is not included; the column Queued shows it. The trainer's gauge "
    "slipway_goodput_ratio is different: it divides by all seconds since training first began, which includes the "
    "time without chips and excludes the first start, and it counts the first step after each start completely.",
)
_DASHES = ("solid", "dashed", "dotted", "dotdash")
COLOURS = 6
"""The number of run colours in page.css. The seventh run has the first colour again, dashed."""


@dataclass(frozen=True)
class Control:
    """A control of a chart, which page.js connects: a checkbox, or a selection with the values and texts of `options`.

    `kind` is "log" (the vertical axis), "smooth" or "y": the column of the data that is smoothed, or that is shown.
    """

    kind: Literal["log", "smooth", "y"]
    label: str
    options: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Chart:
    """A chart and its texts: `says` is the text alternative, `note` is the caption below the chart, and `footnote` the
    title and the text of an explanation below it, closed at first.

    A `wide` chart has a row of the page to itself.
    """

    key: str
    title: str
    says: str
    note: str
    plot: Plot
    wide: bool = False
    controls: Sequence[Control] = ()
    footnote: tuple[str, str] | None = None


@dataclass(frozen=True)
class _Line:
    key: str
    title: str
    unit: str
    format: str
    dots: bool = False
    smooth: bool = False
    log: bool = False


_LINES = (
    _Line(LOSS, "Loss", "", "0.0000", smooth=True, log=True),
    _Line(EVAL_LOSS, "Held-out loss", "", "0.0000", dots=True, log=True),
    _Line(MARGIN, "Margin between the rewards of a pair", "", "0.0000", smooth=True),
    _Line(ACCURACY, "Pairs with a higher reward for the better answer", "", "0.0%", smooth=True),
    _Line(COUNTED, "Tokens of a step that count", "tokens", "0,0"),
    _Line(TOKENS, "Throughput: tokens/s/device", "tokens/s/device", "0,0.0"),
    _Line(TFLOPS, "Throughput: TFLOP/s/device", "TFLOP/s/device", "0,0.000"),
    _Line(MFU, "Model FLOP/s utilization (MFU)", "", "0.00%"),
    _Line(LEARNING_RATE, "Learning rate", "", "%.3e"),
    _Line(GRAD_NORM, "Gradient norm", "", "0.0000", smooth=True, log=True),
)


def charts(runs: Sequence[RunData]) -> list[Chart]:
    """Return the charts that the runs have data for. Charts over steps share their zoom."""
    drawn: list[Chart] = []
    steps = DataRange1d(range_padding=0.02)
    share = Shared()
    for line in _LINES[:2]:
        _add(drawn, _lines(line, runs, steps, share))
    drawn += _values(runs, share)
    _add(drawn, _timeline(runs))
    for line in _LINES[2:5]:
        _add(drawn, _lines(line, runs, steps, share))
    _add(drawn, _histogram(runs, share))
    for line in _LINES[5:]:
        _add(drawn, _lines(line, runs, steps, share))
    return drawn


def document(drawn: Sequence[Chart]) -> str:
    """Return the JSON from which BokehJS draws the charts: the document, and the id of each chart's root by key."""
    doc = Document()
    with doc.models.freeze():  # otherwise every root scans all models again
        for chart in drawn:
            doc.add_root(chart.plot)
    return json.dumps({"doc": doc.to_json(deferred=False), "roots": {chart.key: chart.plot.id for chart in drawn}})


def script() -> str:
    """Return BokehJS itself, without the components that these charts do not need."""
    resources = Resources(mode="inline", components=["bokeh"], log_level="warn")
    return "\n".join(resources.js_raw)


def _add(drawn: list[Chart], chart: Chart | None) -> None:
    if chart is not None:
        drawn.append(chart)


# --- lines over steps ---------------------------------------------------------------------------------------------


def _lines(line: _Line, runs: Sequence[RunData], steps: DataRange1d, share: Shared) -> Chart | None:
    drawn = [(number, run, run.metrics.of(line.key)) for number, run in enumerate(runs)]
    drawn = [one for one in drawn if len(one[2].finite)]
    if not drawn:
        return None
    plot = new_plot(steps, DataRange1d(range_padding=0.05))
    buckets = max(_FEWEST_BUCKETS, min(_MOST_BUCKETS, _POINTS // (2 * len(drawn))))
    thinned = False
    hovered: list[Any] = []
    for number, run, series in drawn:
        x, y = sampled(series.steps, series.values, buckets)
        thinned = thinned or len(x) < len(series.steps)
        data = {"x": x.astype(np.int32) + _first_step(line.key), "y": y.astype(np.float32)}
        if line.smooth:
            kept = np.searchsorted(series.steps, x)
            data |= {
                key: smoothed(series.values, weight)[kept].astype(np.float32) for key, (_, weight) in _SMOOTH.items()
            }
        source = share.source(data)
        pointed = add_line(plot, share, number, run.label, source)
        if line.smooth:
            curve = Line(x="x", y=next(iter(_SMOOTH)), line_width=1.7, line_dash=_dash(number))
            tags = [tag_of(number), "smooth", "off"]  # page.js shows it
            plot.add_glyph(source, curve, view=share.view(), tags=tags, name=run.label, visible=False)
        if line.dots or len(series.finite) < 30:  # one point does not make a line
            dots = Scatter(x="x", y="y", size=5)
            pointed = plot.add_glyph(source, dots, view=share.view(), tags=[tag_of(number)], name=run.label)
        hovered.append(pointed)
        _add_gaps(plot, number, series, _first_step(line.key))
    tips = [("run", "$name"), ("step", "@x{0,0}"), (line.title.partition(":")[0], f"@y{{{line.format}}}")]
    plot.add_tools(hover_tool(hovered, tips, printf="@y" if line.format.startswith("%") else ""))
    unit = line.unit or line.title
    add_axes(plot, "step", "", NumeralTickFormatter(format="0,0"), _formatter(line))
    note = ""
    if thinned:
        note = (
            f"The chart shows the lowest and the highest value of each of {buckets:,} ranges of steps, so no spike is "
            "lost."
        )
    if line.key == LOSS and any(series.not_finite for _, _, series in drawn):
        note = f"A cross is a step whose loss is not finite. {note}".strip()
    parts = [
        f"{run.label} from {_number(series.finite[0])} to {_number(series.finite[-1])}" for _, run, series in drawn
    ]
    controls = []
    if line.log and all(series.finite.min() > 0 for _, _, series in drawn):
        controls.append(Control("log", "log scale"))
    if line.smooth:
        controls.append(
            Control("smooth", "smoothing", [("", "none"), *((key, text) for key, (text, _) in _SMOOTH.items())])
        )
    return Chart(line.key, line.title, f"{unit} by step: {'; '.join(parts)}.", note, plot, controls=controls)


def _first_step(key: str) -> int:
    """Return what to add to a step of metrics.jsonl for the number that people read: the first step is 1 there.

    The step of an evaluation is already the number of steps before it.
    """
    return 0 if key == EVAL_LOSS else 1


def _add_gaps(plot: Plot, number: int, series: Series, first: int) -> None:
    """Add a cross for each value that is not finite, at the height of the last finite one."""
    bad = set(series.not_finite)
    if not bad:
        return
    x, y, last = [], [], float(series.finite[0])
    for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
        if step in bad:
            x.append(step + first)
            y.append(last)
        else:
            last = value
    source = ColumnDataSource({"x": x[:_MOST_GAPS], "y": y[:_MOST_GAPS]})
    plot.add_glyph(source, Scatter(x="x", y="y", size=9, marker="x", line_width=2), tags=[tag_of(number), "gap"])


def _formatter(line: _Line) -> BasicTickFormatter | NumeralTickFormatter:
    if line.key == MFU:
        return NumeralTickFormatter(format="0.[0]%")
    if line.key == LEARNING_RATE:
        return _exponents()
    return NumeralTickFormatter(format="0,0.[000]")


def _exponents() -> BasicTickFormatter:
    """Return a formatter that page.js makes write 3e-4: Bokeh's own formatters write 0.000 or 3.000e-4."""
    return BasicTickFormatter(tags=["exponents"])


# --- the values of a sweep against the loss -----------------------------------------------------------------------


def _values(runs: Sequence[RunData], share: Shared) -> list[Chart]:
    """Return a chart for each swept key that is a number in at least three runs that have a loss."""
    drawn_values: list[Chart] = []
    for key, values in swept_numbers(runs).items():
        drawn = [(number, runs[number], value) for number, value in values.items() if _losses(runs[number])]
        if len(drawn) >= 3 and len({value for _, _, value in drawn}) > 1 and len(drawn_values) < _MOST_KEYS:
            drawn_values.append(_value(f"value-{len(drawn_values)}", key, drawn, share))
    return drawn_values


def _losses(run: RunData) -> dict[str, float]:
    """Return the losses of a run that a chart of values can show, by their names; empty if it has done no step."""
    loss, held_out = run.metrics.of(LOSS).finite, run.metrics.best_eval
    if not len(loss):
        return {}
    losses = {"last loss": float(loss[-1]), "lowest loss": float(loss.min())}
    return losses if held_out is None else {**losses, "lowest held-out loss": held_out}


def _apart(values: Sequence[float], *, log: bool) -> list[float]:
    """Return those of the values whose labels do not overlap on an axis."""
    place = math.log if log else float
    kept: list[float] = []
    for value in sorted(set(values)):
        if not kept or place(value) - place(kept[-1]) > 0.15 * (place(max(values)) - place(min(values))):
            kept.append(value)
    return kept


def _value(name: str, key: str, drawn: Sequence[tuple[int, RunData, float]], share: Shared) -> Chart:
    values = [value for _, _, value in drawn]
    log = min(values) > 0 and max(values) / min(values) > _LOG_FACTOR
    plot = new_plot(DataRange1d(range_padding=0.1), DataRange1d(range_padding=0.1))
    names = dict.fromkeys(name for _, run, _ in drawn for name in _losses(run))
    columns = {each: f"y{number}" for number, each in enumerate(names)}
    hovered: list[Any] = []
    for number, run, value in drawn:
        losses = _losses(run)
        source = share.source({"x": [value], **{column: [losses.get(each)] for each, column in columns.items()}})
        marker = "x" if run.metrics.of(LOSS).not_finite else "circle"
        dot = Scatter(x="x", y="y0", size=9, marker=marker, line_width=2)
        hovered.append(plot.add_glyph(source, dot, view=share.view(), tags=[tag_of(number)], name=run.label))
    tips = [("run", "$name"), (key, "@x{%.6g}"), *((each, f"@{column}{{0.0000}}") for each, column in columns.items())]
    plot.add_tools(hover_tool(hovered, tips, printf="@x"))
    x = _exponents() if log or max(map(abs, values)) < 0.01 else NumeralTickFormatter(format="0,0.[0000]")
    ticks = FixedTicker(ticks=_apart(values, log=log))
    add_axes(plot, key, "", x, NumeralTickFormatter(format="0,0.[000]"), ticks)
    if log:
        plot.x_scale = LogScale()
    parts = [f"{run.label} {value:.4g}: {_number(_losses(run)['last loss'])}" for _, run, value in drawn]
    crosses = any(run.metrics.of(LOSS).not_finite for _, run, _ in drawn)
    note = "A cross is a run whose loss was not finite at a step." if crosses else ""
    controls = [Control("y", "show", [(column, each) for each, column in columns.items()])]
    return Chart(name, f"Loss by {key}", f"Last loss by {key}: {'; '.join(parts)}.", note, plot, controls=controls)


# --- how long steps take ------------------------------------------------------------------------------------------


def _histogram(runs: Sequence[RunData], share: Shared) -> Chart | None:
    drawn = [(number, run, run.metrics.of(STEP_SECONDS).finite) for number, run in enumerate(runs)]
    drawn = [one for one in drawn if len(one[2])]
    if not drawn:
        return None
    # A few very long steps (the first one compiles) would squeeze all others into one bin.
    low = min(float(np.quantile(values, 0.005)) for _, _, values in drawn)
    high = max(float(np.quantile(values, 0.99)) for _, _, values in drawn)
    margin = 0.1 * (high - low) or 0.05 * high or 1e-3
    edges = np.linspace(max(0.0, low - margin), high + margin, _BINS + 1)
    plot = new_plot(DataRange1d(range_padding=0.02), DataRange1d(start=0, range_padding=0.05))
    outside = []
    hovered: list[Any] = []
    for number, run, values in drawn:
        counts, _ = np.histogram(values, edges)
        more = values[(values < edges[0]) | (values > edges[-1])]
        if len(more):
            outside.append(f"{len(more):,} of {run.label} (longest {_number(float(more.max()))} s)")
        # The outline of the histogram: two points for each bin.
        x = np.repeat(edges, 2)
        y = np.concatenate(([0.0], np.repeat(counts / len(values), 2), [0.0]))
        hovered.append(add_line(plot, share, number, run.label, share.source({"x": x, "y": y})))
    tips = [("run", "$name"), ("step time", "@x{0,0.[0000]} s"), ("of its steps", "@y{0.0%}")]
    plot.add_tools(hover_tool(hovered, tips))
    add_axes(plot, "seconds per step", "", BasicTickFormatter(), NumeralTickFormatter(format="0.[0]%"))
    note = "The vertical axis is the share of each run's steps."
    if outside:
        note += f" Outside the chart: {'; '.join(outside)}."
    parts = [f"{run.label} {_number(float(np.median(values)))} s" for _, run, values in drawn]
    return Chart("histogram", "Step time", f"Step time; the median is {'; '.join(parts)}.", note, plot)


# --- the timeline -------------------------------------------------------------------------------------------------


def _timeline(runs: Sequence[RunData]) -> Chart | None:
    drawn = [(number, run) for number, run in enumerate(runs) if run.spans]
    if not drawn:
        return None
    unit, seconds = time_unit(max(run.spans[-1].end - run.spans[0].start for _, run in drawn))
    labels = [run.label for _, run in drawn]
    plot = new_plot(
        DataRange1d(start=0, range_padding=0.03),
        FactorRange(factors=labels[::-1], range_padding=0.25, range_padding_units="absolute"),
        pans="xpan",
    )
    plot.y_scale = CategoricalScale()
    plot.height = 88 + 32 * len(drawn)  # toolbar and axis, and a bar with its label above
    hovered: list[Any] = []
    for phase in Phase:
        rows: dict[str, list[Any]] = {key: [] for key in ("y", "left", "right", "says")}
        for _, run in drawn:
            origin = run.spans[0].start
            for span in run.spans:
                if span.phase is phase:
                    rows["y"].append(run.label)
                    rows["left"].append((span.start - origin) / seconds)
                    rows["right"].append((span.end - origin) / seconds)
                    rows["says"].append(_duration(span.seconds))
        if rows["y"]:
            bar = HBar(y="y", left="left", right="right", height=0.62, line_width=1)
            made = plot.add_glyph(ColumnDataSource(rows), bar, tags=[f"phase {phase}"], name=str(phase))
            hovered.append(made)
    plot.add_tools(hover_tool(hovered, [("", "$name"), ("", "@y"), ("for", "@says")]))
    marks: dict[str, list[Any]] = {"x": [], "y": [], "what": [], "says": []}
    for _, run in drawn:
        for mark in run.marks:
            if mark.bad and run.spans[0].start <= mark.at <= run.spans[-1].end:
                marks["x"].append((mark.at - run.spans[0].start) / seconds)
                marks["y"].append(run.label)
                marks["what"].append(mark.what)
                marks["says"].append(mark.says[:200])
    if marks["x"]:
        triangles = plot.add_glyph(
            ColumnDataSource(marks), Scatter(x="x", y="y", size=10, marker="inverted_triangle"), tags=["mark"]
        )
        plot.add_tools(hover_tool([triangles], [("", "@what"), ("", "@says")]))
    # A narrow screen shows these labels instead of the axis, which would leave no room for the bars.
    above = Text(x=0, y="y", text="y", x_offset=1, y_offset=-7, text_baseline="bottom", text_font_size="11px")
    plot.add_glyph(ColumnDataSource({"y": labels}), above, tags=["labels"], visible=False)
    plot.add_layout(LinearAxis(axis_label=unit, ticker=BasicTicker(desired_num_ticks=6)), "below")
    plot.add_layout(CategoricalAxis(), "left")
    plot.add_layout(Grid(dimension=0, ticker=BasicTicker()))
    says = "; ".join(
        f"{run.label}: {', '.join(f'{span.phase} {_duration(span.seconds)}' for span in run.spans[:12])}"
        for _, run in drawn
    )
    return Chart(
        "timeline",
        "Timeline",
        f"The phases of each run, in order. {says}.",
        f"Time in {unit} since each run was submitted, or since its first record. A triangle is a failure or a "
        "preemption.",
        plot,
        wide=True,
        footnote=_GOODPUT if any(run.goodput for run in runs) else None,
    )


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit in which an axis shows this time, and its seconds."""
    for name, size, least in (("days", 86400.0, 3.0), ("hours", 3600.0, 2.0), ("minutes", 60.0, 3.0)):
        if seconds >= least * size:
            return name, size
    return "seconds", 1.0


# --- shared parts -------------------------------------------------------------------------------------------------


def new_plot(x: Any, y: Any, *, pans: str = "pan") -> Plot:
    """Return an empty chart with the tools of all charts; `pans` is "pan", or "xpan" for a chart over time."""
    zooms: tuple[Any, ...] = ("width",) if pans == "xpan" else ("both",)
    box = BoxZoomTool(dimensions=zooms[0])
    tools: list[Any] = [box, PanTool(dimensions=zooms[0]), WheelZoomTool(dimensions=zooms[0]), SaveTool(), ResetTool()]
    return Plot(
        x_range=x,
        y_range=y,
        height=_HEIGHT,
        sizing_mode="stretch_width",
        min_border_left=8,
        min_border_right=16,
        toolbar=Toolbar(tools=tools, logo=None, autohide=True, active_drag=box, active_scroll=None),
        toolbar_location="above",
        output_backend="canvas",
        title=None,
    )


def add_axes(plot: Plot, below: str, left: str, x: Any, y: Any, ticks: FixedTicker | None = None) -> None:
    """Add axes with these labels and formatters, and their grids; `ticks` are those of the lower axis."""
    usual = [BasicTicker(desired_num_ticks=6) for _ in range(2)]
    sides: tuple[tuple[Literal["below", "left"], str, Literal[0, 1], Any, Any], ...] = (
        ("below", below, 0, x, ticks or usual[0]),
        ("left", left, 1, y, usual[1]),
    )
    for place, label, dimension, formatter, ticker in sides:
        axis = LinearAxis(axis_label=label or None, formatter=formatter, ticker=ticker)
        plot.add_layout(axis, place)
        plot.add_layout(Grid(dimension=dimension, ticker=axis.ticker))


def hover_tool(renderers: list[Any], tips: list[tuple[str, str]], printf: str = "") -> HoverTool:
    """Return one tooltip for all lines of a chart. `$name` in it is the run's label, or the phase, as text.

    `printf` is the field whose format is that of printf. The formats of the others have no exponents.
    """
    formatters: dict[str, Any] = {printf: "printf"} if printf else {}
    return HoverTool(
        renderers=renderers, tooltips=tips, formatters=formatters, mode="mouse", line_policy="nearest", visible=False
    )


class Shared:
    """Stateless models, shared by all lines. This halves the number of models and the time to write them."""

    def __init__(self) -> None:
        self._policy = UnionRenderers()
        self._all = AllIndices()

    def source(self, data: dict[str, Any]) -> ColumnDataSource:
        return ColumnDataSource(data, selection_policy=self._policy)

    def view(self) -> CDSView:
        return CDSView(filter=self._all)


def add_line(plot: Plot, share: Shared, number: int, label: str, source: ColumnDataSource) -> Any:
    """Add the line of x and y in the style of run `number`, and return its renderer."""
    line = Line(x="x", y="y", line_width=1.7, line_dash=_dash(number))
    return plot.add_glyph(source, line, view=share.view(), tags=[tag_of(number)], name=label)


def tag_of(number: int) -> str:
    """Return the tag of a model that the page shows, hides and colours as run `number`."""
    return f"run {number}"


def dash_of(number: int) -> str:
    return _dash(number)


def _dash(number: int) -> str:
    return _DASHES[number // COLOURS % len(_DASHES)]


def _number(value: float) -> str:
    return f"{value:.4g}"


def _duration(seconds: float) -> str:

    return duration(seconds) if seconds >= 1 else f"{seconds:.2f} s"
