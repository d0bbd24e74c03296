"""Search changes of the queues that improve a goal, within the bounds that the user names. Nothing is changed."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.config.plan import CheckFailed
from launcher.config.suggest import closest, join_or
from launcher.config.values import assignment
from launcher.config.values.files import dumps
from launcher.config.values.tree import KeyPath, Origin, Values, set_value
from launcher.errors import UsageError
from launcher.releases import values as release_values
from launcher.simulation import from_values
from launcher.simulation.comparison import Row, figures_table, rows, shown
from launcher.simulation.comparison import Unit as FigureUnit
from launcher.simulation.jobs import jobs_of, team_of
from launcher.simulation.offline import Kueue, notes
from launcher.simulation.platform import Platform
from launcher.simulation.queue_changes import Choice, QueueChanges, differences
from launcher.simulation.simulated import Figures, figures, run_simulation
from launcher.simulation.specs import CohortCycle
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
    changes = QueueChanges(platform, effective.tree)
    chart = _Chart(user)
    _check(bounds, chart, changes)
    runs = read_trace(trace).runs
    now = _figures(platform, runs, kueue)
    goal.check(now)
    search = _Search(platform, changes, chart, runs, goal, bounds, grow, kueue, progress)
    for choice in search.choices():
        search.simulate(choice)
    found: list[Advice] = []
    shown: list[Figures] = []
    for choice in search.better(goal.score(now)):
        if len(found) == _BEST:
            break
        after = search.figures[_key(choice)]
        if after in shown:  # another change with the same figures is not an alternative
            continue
        proven = next((each for each in (search.simplest(choice), choice) if search.proven(each)), None)
        if proven is not None:
            shown.append(after)
            found.append(Advice(_tree(proven), goal.value(after), rows(now, after)))
    return AdviceList(goal, goal.value(now), search.tried, found, [*notes(platform, platform, kueue), *search.notes()])


def _check(bounds: Sequence[Bound], chart: _Chart, changes: QueueChanges) -> None:
    """Raise LauncherError before the search if a bound has an invalid value, or only values that the chart rejects."""
    for place in range(max((len(bound.values) for bound in bounds), default=0)):
        chart.values({bound.path: bound.values[place] for bound in bounds if place < len(bound.values)})
    for bound in bounds:
        changes.check(bound.path, bound.values)
    if chart.rejects({bound.path: bound.values[-1] for bound in bounds}) is not None:
        for bound in bounds:
            if chart.rejects({bound.path: bound.values[-1]}) is not None:
                chart.platform({bound.path: bound.values[0]})


class _Chart:
    """The objects that the chart renders for a change."""

    def __init__(self, user: Values) -> None:
        self._user = user

    def platform(self, choice: Choice) -> Platform:
        """Return the objects. Raises CheckFailed if the chart rejects the values."""
        return from_values.platform_of(*self.values(choice))

    def values(self, choice: Choice) -> tuple[Values, Values]:
        """Return the user's and the effective values with a change. Raises CheckFailed if the schema rejects them."""
        user = self._user
        for path, value in choice.items():
            user = set_value(user, path, value, Origin(WITHIN, 1))
        return user, release_values.effective_of(from_values.CHART, user)

    def rejects(self, choice: Choice) -> CheckFailed | None:
        """Return why the chart rejects a change; None if it accepts it."""
        try:
            self.platform(choice)
        except CheckFailed as error:
            return error
        return None


class _Search:
    """Simulates changes, each once."""

    def __init__(
        self,
        platform: Platform,
        changes: QueueChanges,
        chart: _Chart,
        runs: Sequence[TraceRun],
        goal: Goal,
        bounds: Sequence[Bound],
        grow: bool,
        kueue: Kueue,
        progress: Callable[[int], None],
    ) -> None:
        self._platform, self._changes, self._chart, self._runs, self._goal = platform, changes, chart, runs, goal
        self._bounds, self._grow, self._kueue, self._progress = bounds, grow, kueue, progress
        self.figures: dict[_Key, Figures] = {}
        self._seen: set[_Key] = set()
        self._proven: dict[_Key, bool] = {}
        self._rejected: list[str] = []
        self.tried = 0

    def choices(self) -> Iterator[Choice]:
        """Yield what to try: everything, or one key after the other from the best so far."""
        if math.prod(len(bound.values) for bound in self._bounds) <= MOST_TRIED:
            for values in itertools.product(*(bound.values for bound in self._bounds)):
                yield self._without_current(dict(zip((bound.path for bound in self._bounds), values, strict=True)))
            return
        start: Choice = {}
        best: Score = (math.inf, math.inf)
        improved = True
        while improved and self.tried < MOST_TRIED:
            improved = False
            for bound in self._bounds:
                for value in bound.values:
                    yield self._without_current({**start, bound.path: value})
                # A quota that one key raises must be taken from another one.
                for other in self._bounds:
                    if other.path != bound.path and not self._grow:
                        for value, less in itertools.product(bound.values, other.values):
                            if self.tried < MOST_TRIED:
                                yield self._without_current({**start, bound.path: value, other.path: less})
                # The search continues only from values that the chart accepts.
                top = next((choice for choice in self.better(best) if self.proven(choice)), None)
                if top is not None:
                    start, best, improved = top, self._goal.score(self.figures[_key(top)]), True

    def simulate(self, choice: Choice) -> None:
        """Simulate a change, unless it was tried before."""
        key = _key(choice)
        if key not in self._seen:
            self._seen.add(key)
            self.tried += 1
            self._progress(self.tried)
            self._simulate(choice)

    def _simulate(self, choice: Choice) -> None:
        """Find the figures of a change. One that raises the total quota, if it must not, has none.

        Nor has one whose cohorts are a cycle.
        """
        try:
            platform = self._changes.changed(choice)
        except CohortCycle:
            return
        if self._allowed(platform):
            self.figures[_key(choice)] = _figures(platform, self._runs, self._kueue)

    def simplest(self, choice: Choice) -> Choice:
        """Return the change without the keys that have no effect on the figures."""
        for path in sorted(choice):
            fewer = {other: value for other, value in choice.items() if other != path}
            if _key(fewer) not in self.figures:
                self._simulate(fewer)
            if self.figures.get(_key(fewer)) == self.figures[_key(choice)]:
                choice = fewer
        return choice

    def _without_current(self, choice: Choice) -> Choice:
        """Return the change without the keys that have these values now."""
        return {path: value for path, value in choice.items() if self._changes.current(path) != value}

    def better(self, now: Score) -> list[Choice]:
        """Return the changes that are better than `now`, the best first; of equal ones, those with fewer keys."""
        scored = ((self._goal.score(figures), key) for key, figures in self.figures.items())
        better = [(score, key) for score, key in scored if score < now and self._proven.get(key) is not False]
        better.sort(key=lambda each: (each[0], len(each[1]), str(each[1])))
        return [dict(key) for _, key in better]

    def proven(self, choice: Choice) -> bool:
        """Return whether the chart accepts a change that was simulated.

        Raises RuntimeError if it renders other objects for it than those that were simulated.
        """
        key = _key(choice)
        if key not in self._proven:
            try:
                rendered = self._chart.platform(choice)
            except CheckFailed as error:
                self._rejected.append(error.problems[0].message)
                self._proven[key] = False
                return False
            if differ := differences(self._changes.changed(choice), rendered):
                raise RuntimeError(
                    f"The chart renders other objects for {json.dumps(_tree(choice))} than those that were simulated: "
                    f"{', '.join(differ)}."
                )
            self._proven[key] = True
        return self._proven[key]

    def notes(self) -> list[str]:
        """Return which changes are left out because the chart rejects them."""
        if not self._rejected:
            return []
        more = len(self._rejected) - 1
        which = f" and {more} more, which are" if more else ", which is"
        return [f"The chart rejects a better change{which} left out: {self._rejected[0]}"]

    def _allowed(self, platform: Platform) -> bool:
        return self._grow or all(
            platform.quota(flavor.name, flavor.resource) <= self._platform.quota(flavor.name, flavor.resource)
            for flavor in self._platform.flavors.values()
            if flavor.has_chips
        )


_Key = tuple[tuple[KeyPath, Any], ...]


def _key(choice: Choice) -> _Key:
    return tuple(sorted(choice.items(), key=lambda item: item[0]))


def _figures(platform: Platform, runs: Sequence[TraceRun], kueue: Kueue) -> Figures:
    teams = {run.name: team_of(run, platform) for run in runs}
    return figures(run_simulation(platform, jobs_of(runs, platform), teams, settings=kueue.settings()))


def _tree(choice: Choice) -> dict[str, Any]:
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
    if advice.found:
        parts = [f"The {advice.goal.title} is {now}. The best changes (tried: {advice.tried}):"]
    else:
        parts = [f"No change improves the {advice.goal.title}, which is {now} (tried: {advice.tried})."]
    for number, each in enumerate(advice.found, start=1):
        changed = [row for row in each.rows if row.difference != 0]
        parts.append(
            f"# {number}: {advice.goal.title} {shown(each.goal, advice.goal.unit)}\n{dumps(dict(each.values))}\n"
            + figures_table(changed, compared=True)
        )
    return "\n\n".join(parts + [f"Note: {note}" for note in advice.notes])
