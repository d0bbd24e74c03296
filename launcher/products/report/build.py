"""`launcher report`: one run, or several side by side, as one self-contained HTML page.

sources.py finds the runs, folders.py and kube.py read them, timeline.py computes how their time was spent, charts.py
draws, page.py writes. model.py defines a run and goodput.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from launcher import distribution
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.report import output


@dataclass(frozen=True)
class Report:
    """A report. `page` is the HTML. `runs` are the rows of its first table as data (report.summary.values).
    `left_out` has one sentence for each requested run that could not be read."""

    page: str = field(repr=False)
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
    """Build the report of the runs, sweeps, folders of runs and URLs of such folders in `names`.

    Raises LauncherError if one of them cannot be read. With `skip` it is left out, unless no other is left.
    """
    if find_spec("bokeh") is None:
        raise LauncherError(
            "Bokeh, which draws the charts of a report, is not installed in this Python.",
            f"Install it next to the launcher: {distribution.install('report')}.",
        )
    # These import the packages of the extra `report`.
    from launcher.products.report import sources, summary
    from launcher.products.report.page import page

    runs, bad = sources.read(names, target, say)
    if bad and (not skip or not runs):
        raise _refusal(bad, others=bool(runs))
    left_out = [_sentence(one) for one in bad]

    title = ", ".join(run.label for run in runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
    if len(names) == 1 and len(runs) > 1:  # a sweep
        title = names[0]
    return Report(
        page(runs, title, left_out), output.default_name(names, runs), [summary.as_json(run) for run in runs], left_out
    )


def _sentence(unreadable: Any) -> str:
    message = str(unreadable.error.message)
    return message if unreadable.name in message else f"{unreadable.name}: {message}"


def _refusal(bad: Sequence[Any], *, others: bool) -> LauncherError:
    hint = bad[0].error.hint if len(bad) == 1 else ""
    if others:
        hint = f"--skip creates the report of the others. {hint}".strip()
    return LauncherError("\n".join(_sentence(one) for one in bad), hint)
