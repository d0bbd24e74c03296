"""The page: one self-contained file. Its Content-Security-Policy forbids it to load anything."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from launcher import formatting
from launcher.config.values.tree import dotted
from launcher.products.report import charts, compare, summary
from launcher.products.report.model import Mark, Phase, RunData

GENERATOR = "Slipway report"
"""The page's generator mark, which identifies a report that may be overwritten."""
# A run that restarts repeatedly has thousands of events.
_MOST_MARKS = 200
_TABLE = "the accelerator table"
_DEFAULTS = "charts/"

Entry = tuple[str, str, str]


def page(runs: Sequence[RunData], title: str, left_out: Sequence[str] = ()) -> str:
    """Return the report of the runs as HTML. `left_out` are sentences about runs that are not in it."""
    drawn = charts.charts(runs)
    data = [summary.values(run) for run in runs]
    differing = compare.differences(runs)
    compared = [(number, run) for number, run in enumerate(runs) if run.config]
    config_table = _environment().from_string(_file("config.html"))
    return fill(
        _file("page.html"),
        drawn,
        title=title,
        kind="report",
        count=len(runs),
        runs=runs,
        left_out=left_out,
        columns=summary.shown_columns(data),
        rows=summary.rows(data),
        differences=differing if len(compared) > 1 or differing else None,
        compared=compared,
        unknown_configs=[run.label for run in runs if not run.config],
        scores=compare.scores(runs),
        phases=[phase for phase in Phase if any(span.phase is phase for run in runs for span in run.spans)],
        times=[_times(run) for run in runs],
        most_marks=_MOST_MARKS,
        shown_marks=_shown,
        clock=_clock,
        configs=[_config(run) for run in runs],
        config_table=lambda entries, origins: _raw(config_table.render(entries=entries, origins=bool(origins))),
    )


def fill(template: str, drawn: Sequence[charts.Chart], **values: Any) -> str:
    """Return a page with these charts from its template, which extends layout.html.

    `values` has title, kind and count, and what the template itself needs.
    """
    bokeh, js = (charts.script() if drawn else ""), _file("page.js")
    return (
        _environment()
        .from_string(template)
        .render(
            generator=GENERATOR,
            made=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
            charts=drawn,
            **values,
            css=_raw(_file("page.css")),
            script_hashes=_raw(" ".join(_hash(text) for text in (js, bokeh) if text)),
            document=_raw(_inert(charts.document(drawn))) if drawn else "",
            bokeh=_raw(bokeh),
            js=_raw(js),
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_file), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"colours": charts.COLOURS, "dash": charts.dash_of}  # for parts.html
    return environment


def _raw(html: str) -> Any:
    """Insert text into the page unchanged: our own files, output of our templates, and JSON without a "<"."""
    return Markup(html)  # noqa: S704 - a run's own text comes escaped by a template, or as JSON by _inert


@cache
def _file(name: str) -> str:
    return files("launcher.products.report").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """Return a script's hash for the Content-Security-Policy, which blocks all other scripts."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _inert(text: str) -> str:
    """Escape JSON for a script element, so that nothing in it ends the element."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _times(run: RunData) -> list[tuple[Phase, str, str]]:
    total = sum(span.seconds for span in run.spans)
    rows = []
    for phase in Phase:
        seconds = sum(span.seconds for span in run.spans if span.phase is phase)
        if seconds:
            rows.append((phase, formatting.duration(seconds), f"{seconds / total:.1%}"))
    return rows


def _shown(marks: Sequence[Mark]) -> Sequence[Mark]:
    if len(marks) <= _MOST_MARKS:
        return marks
    return [*marks[: _MOST_MARKS // 2], *marks[-_MOST_MARKS // 2 :]]


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def _config(run: RunData) -> tuple[list[Entry], list[Entry]]:
    """Return the submitter's keys and the chart's defaults. If the origins are not known, all keys are in the first."""
    own: list[Entry] = []
    defaults: list[Entry] = []
    for path, value in compare.flat(run.config):
        key = dotted(path)
        origin = run.origins.get(key) or (_TABLE if path[0] == "accelerator" else "")
        theirs = not run.origins or not (origin.startswith(_DEFAULTS) or path[0] == "accelerator")
        (own if theirs else defaults).append((key, compare.as_text(value), origin))
    return own, defaults
