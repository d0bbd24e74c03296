"""The differences between the configs of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config.secrets import hide
from launcher.config.values.tree import SWEEP, KeyPath, dotted
from launcher.products.report import evaluations
from launcher.products.report.evaluations import Evaluation
from launcher.products.report.model import RunData

NOT_SET = "(not set)"
_MOST_BY_HAND = 3
# Keys that follow from other keys, or differ between any two runs.
_LEFT_OUT = {("run", "name"), ("storage", "mountPath")}


@dataclass(frozen=True)
class Difference:
    """A key, and its value in each run as JSON. `usual` is the most frequent value."""

    key: str
    values: Sequence[str]

    @property
    def usual(self) -> str:
        return max(self.values, key=self.values.count)


def differences(runs: Sequence[RunData]) -> list[Difference]:
    """Return the keys whose values differ between the runs with a known config, or changed during one of them."""
    histories = [_histories(run) for run in runs if run.config]
    keys = dict.fromkeys(path for each in histories for path in each)
    differing = []
    for path in keys:
        if path in _LEFT_OUT or path[0] == "accelerator":
            continue
        values = [_in_words(each.get(path, [(NOT_SET, None)])) for each in histories]
        if len(set(values)) > 1 or any(len(each.get(path, [])) > 1 for each in histories):
            differing.append(Difference(dotted(path), values))
    # The train keys first, then the rest in the order of the files.
    return sorted(differing, key=lambda difference: not difference.key.startswith("train."))


def swept_numbers(runs: Sequence[RunData]) -> dict[str, dict[int, float]]:
    """Return the keys of a sweep with different numbers, each with the last values by the position of the run.

    If no run is of a sweep, these are the keys that differ, unless they are so many that the runs are unlike.
    """
    trees = {number: dict(flat(run.config)) for number, run in enumerate(runs) if run.config}
    by_key = {}
    for key in (one.key for one in differences(runs)):
        values = {
            number: float(value)
            for number, tree in trees.items()
            for path, value in tree.items()
            if dotted(path) == key and isinstance(value, int | float) and not isinstance(value, bool)
        }
        if len(set(values.values())) > 1:
            by_key[key] = values
    swept = {key for run in runs for key, origin in run.origins.items() if origin.startswith(SWEEP)}
    if swept:
        return {key: values for key, values in by_key.items() if key in swept}
    return by_key if len(by_key) <= _MOST_BY_HAND else {}


History = list[tuple[str, int | None]]
"""The values of a key in their order, each with the step at which the next one replaced it, if that is known."""


@dataclass(frozen=True)
class Score:
    """A metric of a task. `values` are those of each run, as text, and `best` the runs with the best value."""

    task: str
    metric: str
    values: Sequence[str]
    best: frozenset[int] = frozenset()


def scores(runs: Sequence[RunData]) -> list[Score]:
    """Return each metric of each task that a run was evaluated on, of its last checkpoint that was evaluated."""
    results = [evaluations.latest(run.evaluations) for run in runs]
    of_tasks = []
    for task in dict.fromkeys(task for each in results for task in each):
        ones = [each.get(task) for each in results]
        for metric in dict.fromkeys(metric for one in ones if one is not None for metric in one.metrics):
            numbers = {
                number: one.metrics[metric]
                for number, one in enumerate(ones)
                if one is not None and metric in one.metrics
            }
            best = (max if all(one.better(metric) for one in ones if one is not None) else min)(numbers.values())
            several = len(set(numbers.values())) > 1
            texts = ["-" if one is None else _with_step(one, metric) for one in ones]
            of_tasks.append(
                Score(task, metric, texts, frozenset(each for each in numbers if several and numbers[each] == best))
            )
    return of_tasks


def _with_step(evaluation: Evaluation, metric: str) -> str:
    text = evaluation.text(metric)
    return text if evaluation.step is None or text == "-" else f"{text} (checkpoint {evaluation.step})"


def _histories(run: RunData) -> dict[KeyPath, History]:
    configs = [*((dict(flat(one.config)), one.step) for one in run.earlier), (dict(flat(run.config)), None)]
    histories: dict[KeyPath, History] = {path: [] for tree, _ in reversed(configs) for path in tree}
    for path, history in histories.items():
        for tree, until in configs:
            value = as_text(tree[path]) if path in tree else NOT_SET
            if history and history[-1][0] == value:
                history.pop()
            history.append((value, until))
    return histories


def _in_words(history: History) -> str:
    """Return "0.001", or for a value that changed, "0.003 until step 10, then 0.001"."""
    *earlier, (last, _) = history
    return "".join(f"{value}{'' if step is None else f' until step {step}'}, then " for value, step in earlier) + last


def flat(tree: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every key that holds a value, with the value. A list is one value. An empty map yields nothing.

    Secrets are hidden: a report is passed on to other people.
    """
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*path, key))
        else:
            yield (*path, key), hide((*path, key), value)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
