"""Simulate changes within bounds, in search of those that improve a goal."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config.plan import CheckFailed
from launcher.config.values import assignment
from launcher.config.values.tree import KeyPath, Origin, Values, set_value
from launcher.errors import UsageError
from launcher.products.planner.simulation import from_values
from launcher.products.planner.simulation.goals import Goal, Score
from launcher.products.planner.simulation.offline import Kueue, simulate_runs
from launcher.products.planner.simulation.platform import Platform
from launcher.products.planner.simulation.queue_changes import WITHIN, Choice, QueueChanges, differences
from launcher.products.planner.simulation.simulated import Figures, figures
from launcher.products.planner.simulation.specs import CohortCycle
from launcher.products.planner.simulation.trace import TraceRun
from launcher.releases import values as release_values

MOST_TRIED = 150
_MOST_VALUES = 64

Key = tuple[tuple[KeyPath, Any], ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """A key of the queues' values, and the values that may be tried for it."""

    key: str
    path: tuple[str, ...]
    values: tuple[Any, ...]


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


class Chart:
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


class Search:
    """Simulates changes, each once. Their figures are until `until`, the end without a change, or until a later end."""

    def __init__(
        self,
        platform: Platform,
        changes: QueueChanges,
        chart: Chart,
        runs: Sequence[TraceRun],
        goal: Goal,
        bounds: Sequence[Bound],
        grow: bool,
        kueue: Kueue,
        progress: Callable[[int], None],
        until: float,
    ) -> None:
        self._platform, self._changes, self._chart, self._runs, self._goal = platform, changes, chart, runs, goal
        self._bounds, self._grow, self._kueue, self._progress = bounds, grow, kueue, progress
        self._until = until
        self.figures: dict[Key, Figures] = {}
        self._seen: set[Key] = set()
        self._proven: dict[Key, bool] = {}
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
                    start, best, improved = top, self._goal.score(self.figures[key_of(top)]), True

    def simulate(self, choice: Choice) -> None:
        """Simulate a change, unless it was tried before."""
        key = key_of(choice)
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
            after = simulate_runs(platform, self._runs, self._kueue)
            self.figures[key_of(choice)] = figures(after, max(after.ends, self._until))

    def simplest(self, choice: Choice) -> Choice:
        """Return the change without the keys that have no effect on the figures."""
        for path in sorted(choice):
            fewer = {other: value for other, value in choice.items() if other != path}
            if key_of(fewer) not in self.figures:
                self._simulate(fewer)
            if self.figures.get(key_of(fewer)) == self.figures[key_of(choice)]:
                choice = fewer
        return choice

    def _without_current(self, choice: Choice) -> Choice:
        """Return the change without the keys that have these values now."""
        return {path: value for path, value in choice.items() if self._changes.current(path) != value}

    def better(self, now: Score) -> list[Choice]:
        """Return the changes that are better than `now`, the best first; of equal ones, those with fewer keys."""
        scored = ((self._goal.score(figures), key) for key, figures in self.figures.items())
        better = [(score, key) for score, key in scored if score < now and self._proven.get(key) is not False]
        better.sort(key=lambda choice: (choice[0], len(choice[1]), str(choice[1])))
        return [dict(key) for _, key in better]

    def proven(self, choice: Choice) -> bool:
        """Return whether the chart accepts a change that was simulated.

        Raises RuntimeError if it renders other objects for it than those that were simulated.
        """
        key = key_of(choice)
        if key not in self._proven:
            try:
                rendered = self._chart.platform(choice)
            except CheckFailed as error:
                self._rejected.append(error.problems[0].message)
                self._proven[key] = False
                return False
            if differ := differences(self._changes.changed(choice), rendered):
                raise RuntimeError(
                    f"The chart renders other objects for {json.dumps(tree_of(choice))} than those that were "
                    f"simulated: {', '.join(differ)}."
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


def key_of(choice: Choice) -> Key:
    return tuple(sorted(choice.items(), key=lambda item: item[0]))


def tree_of(choice: Choice) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in sorted(choice.items()):
        node = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = value
    return tree
