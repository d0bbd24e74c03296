"""Draw docs/explanation/architecture.svg with matplotlib. `make docs` runs this. Units are pixels, from the top."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docs.pages import DOCS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = DOCS / "explanation" / "architecture.svg"
WIDTH, HEIGHT = 1200, 860

INK, SOFT, LINE, PAPER = "#1f2933", "#52606d", "#9aa5b1", "#ffffff"
BLUE, TEAL, AMBER, VIOLET, GREY = "#2563a8", "#0f7b6c", "#a4660c", "#6b4ba1", "#616e7c"
TINT = {BLUE: "#eaf2fb", TEAL: "#e6f5f2", AMBER: "#fdf3e1", VIOLET: "#f1ecfa", GREY: "#f3f5f7"}


def draw() -> str:
    """Return the picture as SVG. The text is the same on every machine."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "slipway", "font.family": "DejaVu Sans"}
    with plt.rc_context(settings):
        figure = plt.figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(HEIGHT, 0)
        axes.axis("off")
        _launcher(axes)
        _places(axes)
        _trainer(axes)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, facecolor=PAPER)
        plt.close(figure)
    text = re.sub(r"<!DOCTYPE[^>]*>\n", "", file.getvalue())
    text = re.sub(r"'DejaVu Sans'", "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif", text)
    title = "<title>Slipway: values become a plan, then a run in one of three places, which writes its results</title>"
    return re.sub(r"(<svg [^>]*>)", rf"\1\n {title}", text, count=1)


def write(file: Path = FILE) -> None:
    file.write_text(draw(), encoding="utf-8")


def _launcher(axes: Axes) -> None:
    """Draw the files, the values tree, the plan, and the verbs that use it."""
    _region(axes, 30, 20, 1140, 296, "launcher  \N{MIDDLE DOT}  your machine, or CI")
    for number, (name, text) in enumerate(
        [("model", "values/models/…"), ("slice", "values/slices/…"), ("team", "yours"), ("run", "yours, --set")]
    ):
        _box(axes, 56, 62 + number * 58, 178, 48, name, text, GREY)
    _arrow(axes, (238, 178), (296, 178))
    _box(axes, 300, 128, 190, 100, "one values tree", "merged by Helm's rule;\nevery key has its\nfile and line", BLUE)
    _arrow(axes, (494, 178), (552, 178))
    _box(
        axes,
        556,
        118,
        216,
        120,
        "LaunchPlan",
        "checked and complete;\nno I/O. One table converts\nslices to hosts and chips",
        BLUE,
        strong=True,
    )
    for number, (verb, text) in enumerate(
        [("render", "manifests"), ("diff", "changes"), ("check", "problems"), ("submit", "one atomic create")]
    ):
        top = 62 + number * 58
        _arrow(axes, (776, 178), (848, top + 24), curve=0.0)
        _box(axes, 852, top, 292, 48, verb, text, BLUE, one_line=True)


def _places(axes: Axes) -> None:
    """Draw the three places where a run can be."""
    _arrow(axes, (170, 320), (170, 396), BLUE)
    _arrow(axes, (469, 320), (469, 406), BLUE)
    _arrow(axes, (1026, 320), (1026, 406), BLUE)
    _label(axes, 182, 344, "submit: local processes")
    _label(axes, 481, 344, "submit: Helm renders, the API server creates")
    _label(axes, 1038, 344, "submit: Ray's Jobs API")
    _region(axes, 330, 372, 840, 206, "the cluster", dashed=True)
    _box(
        axes,
        30,
        400,
        280,
        150,
        "this machine",
        "run.kind: local\n\non the CPU; with local Ray\nfor several hosts; no cluster",
        TEAL,
    )
    _box(
        axes,
        356,
        410,
        226,
        150,
        "one object",
        "run.kind: ray-job, job-set\n\nRayJob or JobSet with the\nrun config inside",
        TEAL,
        strong=True,
    )
    _box(
        axes,
        908,
        410,
        236,
        150,
        "a long-lived Ray cluster",
        "run.kind: ray-cluster\n\ncharts/ray-cluster;\none job after another",
        TEAL,
    )
    _box(
        axes,
        646,
        410,
        198,
        150,
        "Kueue",
        "the platform team's queues,\nby charts/queues: quota in\nslices, priorities. Kueue\ndecides which run starts",
        AMBER,
    )
    _arrow(axes, (586, 485), (642, 485), AMBER, both=True)
    _arrow(axes, (904, 485), (848, 485), AMBER, both=True)


def _trainer(axes: Axes) -> None:
    """Draw the run config, the trainer and its results."""
    for x in (170, 469, 1026):
        _arrow(axes, (x, 564 if x > 200 else 554), (x, 622), TEAL)
    _box(axes, 30, 626, 1140, 40, "", "", VIOLET)
    _text(
        axes,
        600,
        646,
        "run config: one JSON object, the only interface between launcher and trainer. They never import each other",
        12.5,
        VIOLET,
    )
    _arrow(axes, (300, 670), (300, 706), VIOLET)
    _box(
        axes,
        30,
        710,
        540,
        124,
        "trainer",
        "MaxText's own training loop, one process per host.\nUnder Ray: JaxTrainer, which restarts after a failure.\n"
        "In a JobSet: jax.distributed, no Ray",
        VIOLET,
        strong=True,
    )
    _arrow(axes, (574, 772), (640, 772), VIOLET)
    _box(
        axes,
        644,
        710,
        526,
        124,
        "the results of a run",
        "checkpoints with the position in the data, metrics.jsonl,\nTensorBoard files. Each metric is also in the log: "
        "status,\nlogs, explain and report read it on any machine",
        GREY,
    )


def _region(axes: Axes, x: float, y: float, w: float, h: float, name: str, *, dashed: bool = False) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=14"
    edge = LINE if dashed else "#d9e2ec"
    face = "none" if dashed else "#fafbfc"
    patch = FancyBboxPatch((x, y), w, h, boxstyle=style, facecolor=face, edgecolor=edge, linewidth=1.2, zorder=0)
    if dashed:
        patch.set_linestyle((0, (5, 4)))
    axes.add_patch(patch)
    _text(axes, x + 16, y + 20, name, 12, SOFT, align="left", weight="bold")


def _box(
    axes: Axes,
    x: float,
    y: float,
    w: float,
    h: float,
    name: str,
    text: str,
    color: str,
    *,
    strong: bool = False,
    one_line: bool = False,
) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=8"
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            w,
            h,
            boxstyle=style,
            facecolor=TINT[color],
            edgecolor=color,
            linewidth=2.4 if strong else 1.2,
            zorder=2,
        )
    )
    if one_line:
        _text(axes, x + 16, y + h / 2, name, 14, color, align="left", weight="bold")
        _text(axes, x + 98, y + h / 2, text, 12.5, INK, align="left")
        return
    lines = text.split("\n") if text else []
    gap = 18
    top = y + h / 2 - (len(lines) * gap) / 2
    if name:
        _text(axes, x + w / 2, top, name, 14, color, weight="bold")
    for number, line in enumerate(lines):
        _text(axes, x + w / 2, top + 21 + number * gap, line, 12.5, INK)


def _label(axes: Axes, x: float, y: float, text: str) -> None:
    shown = _text(axes, x, y, text, 12, SOFT, align="left")
    shown.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 2.5})


def _text(
    axes: Axes, x: float, y: float, text: str, size: float, color: str, *, align: str = "center", weight: str = "normal"
) -> Any:
    # `size` is in pixels. matplotlib uses points: 72 per inch, and an inch has 100 pixels here.
    return axes.text(x, y, text, fontsize=size * 0.72, color=color, ha=align, va="center", weight=weight, zorder=5)


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    color: str = LINE,
    *,
    both: bool = False,
    curve: float = 0.0,
) -> None:
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="<|-|>" if both else "-|>",
            mutation_scale=12,
            color=color,
            linewidth=1.4,
            connectionstyle=f"arc3,rad={curve}",
            shrinkA=0,
            shrinkB=0,
            zorder=1,
        )
    )
