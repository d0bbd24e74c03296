"""The figure that advice improves."""

from __future__ import annotations

import math
from dataclasses import dataclass

from launcher.config.suggest import closest, join_or
from launcher.errors import UsageError
from launcher.products.planner.simulation.comparison import Unit
from launcher.products.planner.simulation.simulated import Figures

_KINDS = ("wait", "utilisation", "lost")

Score = tuple[float, float]
"""Smaller is better. The first number counts runs that do not end."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure to improve: the 95th wait of a team, the utilisation of a flavor or of all, or lost chip-hours."""

    kind: str
    about: str = ""

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Return the goal of wait:TEAM, utilisation, utilisation:FLAVOR or lost. Raises UsageError."""
        kind, _, about = text.partition(":")
        if kind not in _KINDS or ((kind == "wait") is not bool(about) and kind != "utilisation"):
            raise UsageError(
                f"--advise {text}: this is not a goal; use {join_or(['wait:TEAM', 'utilisation[:FLAVOR]', 'lost'])}."
            )
        return cls(kind, about)

    @property
    def title(self) -> str:
        match self.kind:
            case "wait":
                return f"95th wait of {self.about}"
            case "utilisation":
                return f"utilisation of {self.about or 'all chips'}"
        return "work lost to restarts"

    @property
    def unit(self) -> Unit:
        units = {"wait": Unit.SECONDS, "utilisation": Unit.SHARE}
        return units.get(self.kind, Unit.CHIP_HOURS)

    def check(self, figures: Figures) -> None:
        """Raise UsageError if the team or the flavor does not occur."""
        known = {"wait": figures.teams, "utilisation": figures.flavors}.get(self.kind, {})
        if self.about and self.about not in known:
            near = closest(self.about, known)
            have = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known)) or 'none'}."
            raise UsageError(
                f'--advise: there is no {"team" if self.kind == "wait" else "flavor"} "{self.about}"{have}'
            )

    def value(self, figures: Figures) -> float | None:
        """Return the figure."""
        if self.kind == "wait":
            return figures.teams[self.about].wait_95
        if self.kind == "lost":
            return figures.lost_chip_hours
        if self.about:
            return figures.flavors[self.about].utilisation
        possible = sum(use.chip_hours / use.utilisation for use in figures.flavors.values() if use.utilisation)
        return figures.chip_hours / possible if possible else None

    def score(self, figures: Figures) -> Score:
        """Return how good the figure is."""
        value = self.value(figures)
        never = float(figures.teams[self.about].never if self.kind == "wait" else figures.never)
        if value is None:
            return never, math.inf
        return never, -value if self.kind == "utilisation" else value
