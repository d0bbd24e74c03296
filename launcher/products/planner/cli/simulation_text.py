"""Format simulations, and advice, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from launcher import formatting
from launcher.config.values.writer import dumps
from launcher.products.planner.simulation import tables
from launcher.products.planner.simulation.comparison import Comparison, Row

if TYPE_CHECKING:
    from launcher.products.planner.simulation.advice import AdviceList
    from launcher.products.planner.simulation.live import LiveAnswer
    from launcher.products.planner.simulation.tables import Column

_SHOWN_RUNS = 40


def comparison_text(comparison: Comparison) -> str:
    """Return the runs of the (later) simulation, the figures as a table, and the notes."""
    shown = comparison.after or comparison.before
    if len(shown.runs) <= _SHOWN_RUNS:
        runs = _table(*tables.run_table(shown.runs))
    else:
        runs = f"{len(shown.runs)} runs; -o json lists each of them."
    parts = [runs, _figures(comparison.rows, compared=comparison.after is not None), _notes(comparison.notes)]
    return "\n\n".join(filter(None, parts))


def live_text(answer: LiveAnswer) -> str:
    """Return a table of the user's runs, a line for each thing that one of them waits for, and the notes."""
    if answer.runs:
        parts = [_table(tables.EXPECTED_COLUMNS, map(tables.expected_cells, answer.runs))]
        details = (line for each in answer.runs for line in tables.details(each))
        parts.append("\n".join(map(formatting.paragraph, details)))
    else:
        where = "this namespace" if answer.namespace else "the cluster"
        parts = [f"No run of {where} waits or runs in a queue."]
    if answer.changed is not None:
        parts.append(comparison_text(answer.comparison))
    else:
        parts.append(_notes(answer.notes))
    return "\n\n".join(filter(None, parts))


def advice_text(advice: AdviceList) -> str:
    """Return each change as an overlay with its figures, or that none improves the goal."""
    goal, now = advice.goal, tables.shown(advice.now, advice.goal.unit)
    if advice.found:
        parts = [f"The {goal.title} is {now}. The best changes (tried: {advice.tried}):"]
    else:
        parts = [f"No change improves the {goal.title}, which is {now} (tried: {advice.tried})."]
    for number, choice in enumerate(advice.found, start=1):
        changed = [row for row in choice.rows if row.difference != 0]
        parts.append(
            f"# {number}: {goal.title} {tables.shown(choice.goal, goal.unit)}\n{dumps(dict(choice.values))}\n"
            + _figures(changed, compared=True)
        )
    return "\n\n".join(filter(None, [*parts, _notes(advice.notes)]))


def note(sentence: str) -> str:
    return formatting.paragraph(f"Note: {sentence}")


def _notes(sentences: Iterable[str]) -> str:
    return "\n".join(map(note, sentences))


def _figures(figures: Sequence[Row], *, compared: bool) -> str:
    """Return the rows as a table; rows that are 0 before and after are left out."""
    head = ("", "FIGURE", "BEFORE", "AFTER", "DIFFERENCE") if compared else ("", "FIGURE", "VALUE")
    table: list[Sequence[str]] = [head]
    about = None
    for row in tables.shown_rows(figures):
        named = "" if row.about == about else row.about or "all"
        table.append([named, *tables.figure_cells(row, compared=compared)])
        about = row.about
    return formatting.table(table, grouped=True)


def _table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    return formatting.table([[title.upper() for title, _ in columns], *rows])
