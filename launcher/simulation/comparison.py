"""Figures as rows of a table: of one simulation, or before and after a change with the difference of each number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from launcher import formatting
from launcher.simulation.simulated import Figures, FlavorFigures, Simulated, TeamFigures, figures


class Unit(StrEnum):
    """The unit of a figure."""

    SECONDS = "seconds"
    SHARE = "share"
    COUNT = "count"
    CHIPS = "chips"
    CHIP_HOURS = "chip-hours"
    USD = "usd"


@dataclass(frozen=True, slots=True)
class Row:
    """A figure: what it is about (a team, a flavor, or "" for the whole), its name, and its values.

    `after` is None without a change, and each value is None if it is not known.
    """

    about: str
    name: str
    unit: Unit
    before: float | None
    after: float | None = None

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    def as_json(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "figure": self.name,
            "unit": str(self.unit),
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
        }


@dataclass(frozen=True)
class Comparison:
    """A simulation, and one after a change; `after` is None without a change.

    `notes` has a sentence for each thing that is ignored or assumed.
    """

    before: Simulated
    after: Simulated | None
    notes: Sequence[str]

    @property
    def rows(self) -> list[Row]:
        return rows(figures(self.before), None if self.after is None else figures(self.after))

    def as_json(self) -> dict[str, Any]:
        data = {"before": self.before.as_json(), "after": None if self.after is None else self.after.as_json()}
        compared = [row.as_json() for row in self.rows] if self.after is not None else []
        return {**data, "comparison": compared, "notes": list(self.notes)}


def rows(before: Figures, after: Figures | None = None) -> list[Row]:
    """Return the rows of one or two simulations: by team, by flavor, and of the whole."""
    return [
        *_group(before.teams, None if after is None else after.teams, _TEAM),
        *_group(before.flavors, None if after is None else after.flavors, _FLAVOR),
        *(Row("", name, unit, value(before), None if after is None else value(after)) for name, unit, value in _WHOLE),
    ]


_Column = tuple[str, Unit, Callable[[Any], float | None]]
_TEAM: Sequence[tuple[str, Unit, Callable[[TeamFigures], float | None]]] = (
    ("median wait", Unit.SECONDS, lambda team: team.median_wait),
    ("95th wait", Unit.SECONDS, lambda team: team.long_wait),
    ("runs", Unit.COUNT, lambda team: team.runs),
    ("runs that do not end", Unit.COUNT, lambda team: team.never),
    ("preemptions", Unit.COUNT, lambda team: team.preemptions),
    ("lost to restarts", Unit.CHIP_HOURS, lambda team: team.lost_chip_hours),
)
_FLAVOR: Sequence[tuple[str, Unit, Callable[[FlavorFigures], float | None]]] = (
    ("quota", Unit.CHIPS, lambda flavor: flavor.chips),
    ("utilisation", Unit.SHARE, lambda flavor: flavor.utilisation),
)
_WHOLE: Sequence[tuple[str, Unit, Callable[[Figures], float | None]]] = (
    ("preemptions", Unit.COUNT, lambda whole: whole.preemptions),
    ("lost to restarts", Unit.CHIP_HOURS, lambda whole: whole.lost_chip_hours),
    ("used by runs", Unit.CHIP_HOURS, lambda whole: whole.chip_hours),
    ("cost of the runs", Unit.USD, lambda whole: whole.usd),
    ("cost of all quota", Unit.USD, lambda whole: whole.quota_usd),
    ("last event after", Unit.SECONDS, lambda whole: whole.ends),
)


def _group(before: Mapping[str, Any], after: Mapping[str, Any] | None, columns: Sequence[_Column]) -> Iterator[Row]:
    for about in sorted({*before, *(after or {})}):
        for name, unit, value in columns:
            yield Row(
                about,
                name,
                unit,
                value(before[about]) if about in before else None,
                value(after[about]) if after is not None and about in after else None,
            )


# --- text -----------------------------------------------------------------------------------------------------------

_SHOWN_RUNS = 40


def as_text(comparison: Comparison) -> str:
    """Return the runs of the (later) simulation, the figures as a table, and the notes."""
    shown = comparison.after or comparison.before
    parts = []
    if len(shown.runs) <= _SHOWN_RUNS:
        parts.append(runs_table(shown))
    else:
        parts.append(f"{len(shown.runs)} runs; -o json lists each of them.")
    parts.append(figures_table(comparison.rows, compared=comparison.after is not None))
    unpriced = sorted({*figures(comparison.before).unpriced, *figures(shown).unpriced})
    notes = list(comparison.notes)
    if unpriced:
        notes.append(f"The cost does not include {', '.join(unpriced)}: no price is known; set it in common.prices.")
    if notes:
        parts.append("\n".join(formatting.paragraph(f"Note: {note}") for note in notes))
    return "\n\n".join(parts)


def runs_table(simulated: Simulated) -> str:
    """Return a table of the runs, in the order of their arrival."""
    table = [("RUN", "TEAM", "CHIPS", "ARRIVES", "STARTS", "WAIT", "ENDS", "FLAVOR", "PREEMPTED", "")]
    table += [
        (
            run.name,
            run.team,
            str(run.chips),
            formatting.duration(run.arrives),
            "-" if run.starts is None else formatting.duration(run.starts),
            "-" if run.wait is None else formatting.duration(run.wait),
            "-" if run.ends is None else formatting.duration(run.ends),
            ",".join(run.flavors) or "-",
            str(run.preemptions),
            run.never,
        )
        for run in simulated.runs
    ]
    if not any(run.never for run in simulated.runs):
        table = [row[:-1] for row in table]  # type: ignore[misc]
    return formatting.table(table)


def shown_rows(found: Sequence[Row]) -> list[Row]:
    """Return the rows without those that are 0 before and after. Times are always shown."""
    return [row for row in found if row.before or row.after or row.unit is Unit.SECONDS]


def figures_table(found: Sequence[Row], *, compared: bool) -> str:
    """Return the rows as a table; rows that are 0 before and after are left out."""
    head = ("", "FIGURE", "BEFORE", "AFTER", "DIFFERENCE") if compared else ("", "FIGURE", "VALUE")
    table: list[tuple[str, ...]] = [head]
    about = None
    for row in shown_rows(found):
        cells = [("" if row.about == about else row.about or "all"), row.name, shown(row.before, row.unit)]
        if compared:
            cells += [shown(row.after, row.unit), difference(row)]
        table.append(tuple(cells))
        about = row.about
    return formatting.table(table, grouped=True)


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
