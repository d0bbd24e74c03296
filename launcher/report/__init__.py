"""`launcher report`: one run, or several side by side, as one HTML page that needs nothing but itself.

sources.py finds the runs, folders.py and kube.py read them, timeline.py says what their time went into, charts.py
draws, page.py writes. model.py says what a run is here, and what goodput means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target


@dataclass(frozen=True)
class Report:
    """`page` is the HTML; `runs` the rows of its first table, as data (launcher.report.summary.values), and `left_out`
    what was asked for and could not be read, a sentence each."""

    page: str
    file_name: str
    runs: Sequence[dict[str, Any]]
    left_out: Sequence[str]


def build(
    names: Sequence[str],
    *,
    target: Target = DEFAULT_TARGET,
    skip: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """The report of what `names` name: runs, sweeps, folders of runs, URLs of such folders.

    Raises LauncherError where one of them cannot be read; with `skip` it is left out, unless nothing else is left.
    """
    from importlib.util import find_spec

    if find_spec("bokeh") is None:
        raise LauncherError(
            "This Python lacks Bokeh, which draws the charts of a report.",
            'Install it beside the launcher: pip install "slipway[report]".',
        )
    from launcher.report import output, sources, summary

    runs, bad = sources.read(names, target, say)
    if bad and (not skip or not runs):
        raise _refusal(bad, others=bool(runs))
    left_out = [_sentence(one) for one in bad]
    from launcher.report.page import page

    title = ", ".join(run.label for run in runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
    return Report(
        page(runs, title, left_out), output.default_name(names, runs), [summary.values(run) for run in runs], left_out
    )


def _sentence(one: Any) -> str:
    message = str(one.error.message)
    return message if one.name in message else f"{one.name}: {message}"


def _refusal(bad: Sequence[Any], *, others: bool) -> LauncherError:
    hint = bad[0].error.hint if len(bad) == 1 else ""
    if others:
        hint = f"{hint} --skip makes the report of the others.".strip()
    return LauncherError("\n".join(_sentence(one) for one in bad), hint)
