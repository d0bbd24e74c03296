"""Search changes of the queues that improve a goal, within the bounds that the user names. Nothing is changed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher import formatting
from launcher.config.plan import CheckFailed
from launcher.config.suggest import closest, join_or
from launcher.config.values import assignment
from launcher.config.values.files import dumps
from launcher.config.values.tree import Origin, Values, set_value
from launcher.errors import UsageError
from launcher.releases import values as release_values
from launcher.simulation import from_values
from launcher.simulation.comparison import Row, figures_table, rows, shown
from launcher.simulation.comparison import Unit as FigureUnit
from launcher.simulation.jobs import jobs_of, team_of
from launcher.simulation.offline import Kueue, notes
from launcher.simulation.platform import Platform
from launcher.simulation.queue_changes import changed_platform
from launcher.simulation.simulated import Figures, figures, run_simulation
from launcher.simulation.trace import TraceRun, read_trace

WITHIN = "--within"
MOST_TRIED = 150
_MOST_VALUES = 64
_BEST = 3
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
    def unit(self) -> FigureUnit:
        units = {"wait": FigureUnit.SECONDS, "utilisation": FigureUnit.SHARE}
        return units.get(self.kind, FigureUnit.CHIP_HOURS)

    def check(self, found: Figures) -> None:
        """Raise UsageError if the team or the flavor does not occur."""
        known = {"wait": found.teams, "utilisation": found.flavors}.get(self.kind, {})
        if self.about and self.about not in known:
            near = closest(self.about, known)
            have = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known)) or 'none'}."
            raise UsageError(
                f'--advise: there is no {"team" if self.kind == "wait" else "flavor"} "{self.about}"{have}'
            )

    def value(self, found: Figures) -> float | None:
        """Return the figure."""
        if self.kind == "wait":
            return found.teams[self.about].long_wait
        if self.kind == "lost":
            return found.lost_chip_hours
        if self.about:
            return found.flavors[self.about].utilisation
        possible = sum(each.chip_hours / each.utilisation for each in found.flavors.values() if each.utilisation)
        return found.chip_hours / possible if possible else None

    def score(self, found: Figures) -> Score:
        """Return how good the figure is."""
        value = self.value(found)
        never = float(found.teams[self.about].never if self.kind == "wait" else found.never)
        if value is None:
            return never, math.inf
        return never, -value if self.kind == "utilisation" else value


@dataclass(frozen=True, slots=True)
class Bound:
    """A key of the queues' values, and the values that may be tried for it."""

    key: str
    path: tuple[str, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Advice:
    """A change: the values overlay, the goal after it, and each figure before and after. `tables` has the rows."""

    values: Mapping[str, Any]
    goal: float | None
    rows: Sequence[Row]

    def as_json(self) -> dict[str, Any]:
        return {"values": self.values, "goal": self.goal, "comparison": [row.as_json() for row in self.rows]}


@dataclass(frozen=True)
class AdviceList:
    """The best changes, the best first; [] if none improves the goal. `tried` is the number of simulations."""

    goal: Goal
    now: float | None
    tried: int
    found: Sequence[Advice]
    notes: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        return {
            "goal": self.goal.title,
            "now": self.now,
            "tried": self.tried,
            "advice": [each.as_json() for each in self.found],
            "notes": list(self.notes),
        }


def read_bound(text: str) -> Bound:
    """Return the bound KEY=FROM..TO or KEY=V1,V2,…. Raises UsageError."""
    axis = assignment.read_sweep(text, Origin(WITHIN, 1))
    if not all(isinstance(part, str) for part in axis.parts):
        raise UsageError(f'{WITHIN} "{text}": a key of a list cannot be varied.')
    values = axis.values
    first = values[0]
    if len(values) == 1 and isinstance(first, str) and ".." in first:
        low, _, high = first.partition("..")
        if not (low.isdecimal() and high.isdecimal()) or int(low) > int(high):
            raise UsageError(f'{WITHIN} "{text}": "{first}" is not a range of whole numbers, such as 2..8.')
        values = tuple(range(int(low), int(high) + 1))
    if len(values) > _MOST_VALUES:
        raise UsageError(f'{WITHIN} "{text}": it has {len(values)} values, and at most {_MOST_VALUES} can be tried.')
    return Bound(axis.key, tuple(map(str, axis.parts)), values)


def advise(
    files: Sequence[str],
    trace: Path,
    goal: Goal,
    within: Sequence[str],
    *,
    grow: bool = False,
    kueue: Kueue | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> AdviceList:
    """Return the best three changes within the bounds. Calls `progress` with the number of simulations so far.

    Without `grow`, the quota of a flavor in all queues and cohorts together may not become larger. All combinations are
    tried if they are at most MOST_TRIED; else one key after the other, as long as the goal improves.
    """
    kueue = kueue or Kueue()
    bounds = [read_bound(text) for text in within]
    user, effective = release_values.load(from_values.CHART, files, [])
    platform = from_values.platform_of(user, effective)
    for bound in bounds:
        _check(bound, user)
    runs = read_trace(trace).runs
    now = _figures(platform, runs, kueue)
    goal.check(now)
    search = _Search(platform, user, runs, goal, bounds, grow, kueue, progress)
    for choice in search.choices():
        search.simulate(choice)
    found: list[Advice] = []
    for choice in search.better(goal.score(now)):
        if len(found) == _BEST:
            break
        try:
            # The values decide: the figures are those of the chart's own objects.
            exact = from_values.platform_of(*_with(user, choice))
        except CheckFailed:  # a combination that the chart rejects
            continue
        after = _figures(exact, runs, kueue)
        found.append(Advice(_tree(choice), goal.value(after), rows(now, after)))
    return AdviceList(goal, goal.value(now), search.tried, found, notes(platform, platform, kueue))


def _check(bound: Bound, user: Values) -> None:
    """Raise CheckFailed before the search if the chart accepts neither the first nor the last value of a bound."""
    try:
        from_values.platform_of(*_with(user, {bound.path: bound.values[-1]}))
    except CheckFailed:
        from_values.platform_of(*_with(user, {bound.path: bound.values[0]}))


_Choice = Mapping[tuple[str, ...], Any]


class _Search:
    """Simulates changes, each once."""

    def __init__(
        self,
        platform: Platform,
        user: Values,
        runs: Sequence[TraceRun],
        goal: Goal,
        bounds: Sequence[Bound],
        grow: bool,
        kueue: Kueue,
        progress: Callable[[int], None],
    ) -> None:
        self._platform, self._user, self._runs, self._goal = platform, user, runs, goal
        self._bounds, self._grow, self._kueue, self._progress = bounds, grow, kueue, progress
        self._scores: dict[tuple[tuple[tuple[str, ...], Any], ...], Score | None] = {}
        self.tried = 0

    def choices(self) -> Iterator[_Choice]:
        """Yield what to try: everything, or one key after the other from the best so far."""
        if math.prod(len(bound.values) for bound in self._bounds) <= MOST_TRIED:
            for values in itertools.product(*(bound.values for bound in self._bounds)):
                yield dict(zip((bound.path for bound in self._bounds), values, strict=True))
            return
        start: dict[tuple[str, ...], Any] = {}
        improved = True
        while improved and self.tried < MOST_TRIED:
            improved = False
            for bound in self._bounds:
                for value in bound.values:
                    yield {**start, bound.path: value}
                # A quota that one key raises must be taken from another one.
                for other in self._bounds:
                    if other.path != bound.path and not self._grow:
                        for value, less in itertools.product(bound.values, other.values):
                            if self.tried < MOST_TRIED:
                                yield {**start, bound.path: value, other.path: less}
                tried = {key: score for key, score in self._scores.items() if score is not None}
                if not tried:
                    continue
                top = min(tried, key=lambda key: (tried[key], len(key), str(key)))
                if tried[top] < (tried.get(_key(start)) or (math.inf, math.inf)):
                    start, improved = dict(top), True

    def simulate(self, choice: _Choice) -> None:
        """Simulate a change, unless it was tried before. One that raises the total quota, if it must not, has no score.

        One that the chart rejects has none, either.
        """
        key = _key(choice)
        if key in self._scores:
            return
        self._scores[key] = None
        self.tried += 1
        self._progress(self.tried)
        platform = changed_platform(self._platform, choice)
        if platform is None:
            try:
                platform = from_values.platform_of(*_with(self._user, choice))
            except CheckFailed:
                return
        if self._allowed(platform):
            self._scores[key] = self._goal.score(_figures(platform, self._runs, self._kueue))

    def better(self, now: Score) -> list[_Choice]:
        """Return the changes that are better than `now`, the best first; of equal ones, those with fewer keys."""
        better = [(score, key) for key, score in self._scores.items() if score is not None and score < now]
        better.sort(key=lambda each: (each[0], len(each[1]), str(each[1])))
        return [dict(key) for _, key in better]

    def _allowed(self, platform: Platform) -> bool:
        return self._grow or all(
            platform.quota(flavor.name, flavor.resource) <= self._platform.quota(flavor.name, flavor.resource)
            for flavor in self._platform.flavors.values()
            if flavor.has_chips
        )


def _key(choice: _Choice) -> tuple[tuple[tuple[str, ...], Any], ...]:
    return tuple(sorted(choice.items(), key=lambda item: item[0]))


def _figures(platform: Platform, runs: Sequence[TraceRun], kueue: Kueue) -> Figures:
    teams = {run.name: team_of(run, platform) for run in runs}
    return figures(run_simulation(platform, jobs_of(runs, platform), teams, settings=kueue.settings()))


def _with(user: Values, choice: _Choice) -> tuple[Values, Values]:
    """Return the user's values with a change, and the effective values. Raises CheckFailed if they are not valid."""
    for path, value in choice.items():
        user = set_value(user, path, value, Origin(WITHIN, 1))
    return user, release_values.effective_of(from_values.CHART, user)


def _tree(choice: _Choice) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in sorted(choice.items()):
        node = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = value
    return tree


def as_text(advice: AdviceList) -> str:
    """Return each change as an overlay with its figures, or that none improves the goal."""
    now = shown(advice.now, advice.goal.unit)
    if not advice.found:
        return f"No change improves the {advice.goal.title}, which is {now} (tried: {advice.tried})."
    parts = [f"The {advice.goal.title} is {now}. The best changes (tried: {advice.tried}):"]
    for number, each in enumerate(advice.found, start=1):
        changed = [row for row in each.rows if row.difference != 0]
        parts.append(
            f"# {number}: {advice.goal.title} {shown(each.goal, advice.goal.unit)}\n{dumps(dict(each.values))}\n"
            + figures_table(changed, compared=True)
        )
    return "\n\n".join(parts + [formatting.paragraph(f"Note: {note}") for note in advice.notes])
