"""A simulation as cells of tables, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher import formatting
from launcher.products.planner.simulation.comparison import Row, Unit
from launcher.products.planner.simulation.live import Expectation
from launcher.products.planner.simulation.simulated import RunResult

Column = tuple[str, str]
"""The title of a column, and its kind: name, number or words."""

_RUN_COLUMNS: Sequence[Column] = (
    ("run", "name"),
    ("team", "name"),
    *((title, "number") for title in ("chips", "arrives", "starts", "wait", "ends")),
    ("flavor", "name"),
    ("preempted", "number"),
    ("reason", "words"),
)
EXPECTED_COLUMNS: Sequence[Column] = (
    *((title, "name") for title in ("run", "queue", "starts", "ends")),
    ("takes", "words"),
)


# --- figures ----------------------------------------------------------------------------------------------------------


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without those that are 0 before and after. Times are always shown."""
    return [row for row in rows if row.before or row.after or row.unit is Unit.SECONDS]


def figure_cells(row: Row, *, compared: bool) -> list[str]:
    """Return the name of a figure and its value; or its values before and after, and the difference."""
    cells = [row.name, shown(row.before, row.unit)]
    return [*cells, shown(row.after, row.unit), difference(row)] if compared else cells


def shown(value: float | None, unit: Unit) -> str:
    """Format a figure; "-" if it is not known."""
    if value is None:
        return "-"
    match unit:
        case Unit.SECONDS:
            return formatting.duration(value)
        case Unit.SHARE:
            return f"{value:.1%}"
        case Unit.USD:
            return f"${value:,.2f}"
        case Unit.CHIP_HOURS:
            return f"{value:,.1f} chip-hours"
        case Unit.CHIPS:
            return f"{value:,.0f} chips"
        case _:
            return f"{value:,.0f}"


def difference(row: Row) -> str:
    """Format the difference of a row with its sign; "=" without one, and "-" if it is not known."""
    if row.difference is None:
        return "-"
    if shown(abs(row.difference), row.unit) == shown(0.0, row.unit):
        return "="
    sign = "+" if row.difference > 0 else "-"
    if row.unit is Unit.SHARE:
        return f"{sign}{abs(row.difference) * 100:.1f} points"
    return sign + shown(abs(row.difference), row.unit)


# --- runs -------------------------------------------------------------------------------------------------------------


def run_table(runs: Sequence[RunResult]) -> tuple[list[Column], list[list[str]]]:
    """Return the columns and the rows of a table of runs.

    The last column is the reason why a run does not end; it is left out if all of them end.
    """
    rows = [[*_run_cells(run), run.never] for run in runs]
    if any(run.never for run in runs):
        return [*_RUN_COLUMNS], rows
    return [*_RUN_COLUMNS[:-1]], [row[:-1] for row in rows]


def _run_cells(run: RunResult) -> list[str]:
    return [
        run.name,
        run.team,
        f"{run.chips:,}",
        formatting.duration(run.arrives),
        *("-" if time is None else formatting.duration(time) for time in (run.starts, run.wait, run.ends)),
        ", ".join(run.flavors) or "-",
        str(run.preemptions),
    ]


# --- runs of a cluster ------------------------------------------------------------------------------------------------


def expected_cells(expectation: Expectation) -> list[str]:
    """Return when a run of a cluster starts and ends, and how long it takes."""
    return [
        expectation.run.job.name,
        expectation.run.job.queue,
        "runs" if expectation.starts is None else expectation.starts.text,
        expectation.ends.text,
        expectation.run.duration.text,
    ]


def details(start: Expectation) -> Iterator[str]:
    """Yield a sentence for each thing that a run waits for, preempts, or is preempted by."""
    name = start.run.job.name
    if start.never:
        yield f"{name} does not start: {start.never}."
    elif start.behind:
        yield f"{name} waits behind {start.behind}: the queue {start.run.job.queue} admits runs strictly in order."
    if start.waits_for:
        yield f"{name} waits for the quota of {_words(start.waits_for)}."
    if start.preempts:
        yield f"{name} preempts {_words(start.preempts)}."
    if start.preempted_by:
        yield f"{name} is preempted by {_words(start.preempted_by)}, and starts again."


def _words(names: Sequence[str]) -> str:
    shown = list(names[:5]) + ([f"{len(names) - 5} more"] if len(names) > 5 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
