"""Search changes of the queues that improve a goal, within the bounds that the user names. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.products.planner.simulation import from_values
from launcher.products.planner.simulation.advice_search import Bound, Chart, Search, key_of, read_bound, tree_of
from launcher.products.planner.simulation.comparison import Row, rows
from launcher.products.planner.simulation.goals import Goal
from launcher.products.planner.simulation.offline import Kueue, notes, simulate_runs
from launcher.products.planner.simulation.queue_changes import QueueChanges
from launcher.products.planner.simulation.simulated import Figures, figures
from launcher.products.planner.simulation.trace import read_trace
from launcher.releases import values as release_values

_BEST = 3


@dataclass(frozen=True)
class Advice:
    """A change: the values overlay, the goal after it, and each figure before and after."""

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
    chart = Chart(user)
    _check(bounds, chart, changes)
    runs = read_trace(trace).runs
    before = simulate_runs(platform, runs, kueue)
    now = figures(before)
    goal.check(now)
    search = Search(platform, changes, chart, runs, goal, bounds, grow, kueue, progress, before.ends)
    for choice in search.choices():
        search.simulate(choice)
    advice: list[Advice] = []
    shown: list[Figures] = []
    for choice in search.better(goal.score(now)):
        if len(advice) == _BEST:
            break
        after = search.figures[key_of(choice)]
        if after in shown:  # another change with the same figures is not an alternative
            continue
        proven = next((each for each in (search.simplest(choice), choice) if search.proven(each)), None)
        if proven is not None:
            shown.append(after)
            compared = rows(figures(before, max(before.ends, after.ends)), after)
            advice.append(Advice(tree_of(proven), goal.value(after), compared))
    weights = changes.changed({bound.path: bound.values[-1] for bound in bounds if bound.path[-1] == "fairWeight"})
    all_notes = [*notes(platform, weights, kueue), *search.notes()]
    return AdviceList(goal, goal.value(now), search.tried, advice, all_notes)


def _check(bounds: Sequence[Bound], chart: Chart, changes: QueueChanges) -> None:
    """Raise LauncherError before the search if a bound has an invalid value, or only values that the chart rejects."""
    for place in range(max((len(bound.values) for bound in bounds), default=0)):
        chart.values({bound.path: bound.values[place] for bound in bounds if place < len(bound.values)})
    for bound in bounds:
        changes.check(bound.path, bound.values)
    if chart.rejects({bound.path: bound.values[-1] for bound in bounds}) is not None:
        for bound in bounds:
            if chart.rejects({bound.path: bound.values[-1]}) is not None:
                chart.platform({bound.path: bound.values[0]})
