"""Figures as rows of a table: of one simulation, or before and after a change with the difference of each number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from launcher.products.planner.simulation.simulated import Figures, FlavorFigures, Simulated, TeamFigures, figures


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

    `assumptions` has a sentence for each thing that is ignored or assumed, and `change` the options of the change, such
    as "--set clusterQueues.research.quota.v6e-4x4.slices=+2". Both simulations are compared until the last event of
    either.
    """

    before: Simulated
    after: Simulated | None
    assumptions: Sequence[str]
    change: Sequence[str] = ()

    @property
    def until(self) -> float:
        """The time until which the figures are calculated, in seconds from the start."""
        return max(self.before.ends, self.after.ends if self.after is not None else 0.0)

    @property
    def figures(self) -> tuple[Figures, Figures | None]:
        """The figures before and after the change."""
        after = None if self.after is None else figures(self.after, self.until)
        return figures(self.before, self.until), after

    @property
    def rows(self) -> list[Row]:
        return rows(*self.figures)

    @property
    def notes(self) -> list[str]:
        """The assumptions, and what the figures do not include: a sentence each."""
        unpriced = sorted({name for each in self.figures if each is not None for name in each.unpriced})
        if not unpriced:
            return list(self.assumptions)
        names = ", ".join(unpriced)
        return [
            *self.assumptions,
            f"The cost does not include {names}: no price is known; set it in common.prices.",
        ]

    def as_json(self) -> dict[str, Any]:
        before, after = self.before.as_json(self.until), None
        if self.after is not None:
            after = self.after.as_json(self.until)
        compared = [row.as_json() for row in self.rows] if self.after is not None else []
        return {
            "before": before,
            "after": after,
            "change": list(self.change),
            "comparison": compared,
            "notes": self.notes,
        }


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
    ("95th wait", Unit.SECONDS, lambda team: team.wait_95),
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
