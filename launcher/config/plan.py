"""Build a launch plan from values. Pure, so that render, diff, check and submit cannot diverge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from launcher.config import accelerators
from launcher.config.alternatives import Alternative, Split, split
from launcher.config.avoided_nodes import without_ended
from launcher.config.checks import rules as checks
from launcher.config.checks.problems import WARNING, Problem, as_lines, table_of
from launcher.config.checks.schema import spell_value
from launcher.config.kinds import RunKind
from launcher.config.secrets import hide
from launcher.config.values.files import chart_defaults
from launcher.config.values.tree import Origin, Values, dotted, set_value, with_defaults
from launcher.config.weights import with_weights
from launcher.errors import LauncherError


class CheckFailed(LauncherError):
    """Invalid values. `problems` has all problems, including warnings; the message has one line per error."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        errors = [problem for problem in problems if problem.severity == checks.ERROR]
        super().__init__(as_lines(errors))
        self.problems = list(problems)


@dataclass(frozen=True)
class SweepMember:
    """A run's membership in a sweep: the sweep's name, the run's number in it (from 1), and the run's own values.

    `values` are those that the sweep set, by their keys as written. They are not part of the run's config.
    """

    sweep: str
    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class LaunchPlan:
    """The run to launch; the same for every verb and every kind of run.

    `config` is the run config, plain JSON data that the trainer reads: the effective values with their keys
    unchanged (run, team, queue, slice, storage, data, worker, from, train), without `common` and keys of other charts;
    with `from`, train.load_parameters_path, which follows from it; and `accelerator`, the table's data about the slice:

        name, kind ("tpu", "gpu", "cpu"), label, rayAcceleratorType, hbmGiB (GiB per chip), peakTflops (dense bf16
        TFLOP/s per chip, 0 if unknown), machineType, topology ("" except for TPUs), chipsPerHost, and, per slice,
        hosts and chips.

    `user` is the user's own layers, which are passed to Helm. `values` is the effective values with their origins,
    including `common`. `warnings` are sentences. `member` is set if the run is part of a sweep. `force` submits the
    run even if the cluster reports that it can never start.

    If slice.any needs several runs, this is the plan of one of them: `alternative` describes it, and `others` are the
    plans of the others, in their order. All have the same name; only one of them runs.
    """

    name: str
    kind: RunKind
    namespace: str
    config: dict[str, Any] = field(repr=False)
    user: Values = field(repr=False)
    values: Values = field(repr=False)
    warnings: tuple[str, ...] = ()
    force: bool = False
    member: SweepMember | None = None
    alternative: Alternative | None = None
    others: tuple[LaunchPlan, ...] = field(default=(), repr=False)

    @property
    def number(self) -> int:
        """The number of the alternative in slice.any, from 1; 0 if there is none."""
        return self.alternative.number if self.alternative else 0

    @property
    def alternatives(self) -> list[LaunchPlan]:
        """The plans of all alternatives that need runs of their own, in the order of slice.any; [self] if none."""
        return sorted([self, *self.others], key=lambda plan: plan.number)


def effective(user: Values, defaults: Values, name: str | None = None) -> tuple[Values, Values]:
    """Return the user's values with `--name` applied, and the effective values."""
    if name is not None:
        user = set_value(user, ("run", "name"), name, Origin("--name", 1))
    return user, with_defaults(user, defaults)


def check_launch(user: Values, defaults: Values, *, name: str | None = None) -> list[Problem]:
    """Return all problems of the values, including warnings, sorted by file and line; empty if there are none."""
    return _check(effective(user, defaults, name)[0], defaults)[1]


def plan_launch(
    user: Values, defaults: Values, *, name: str | None = None, rules: checks.Rules = checks.RULES
) -> LaunchPlan:
    """Return the plan for the user's values over the chart's `defaults` (`values.chart_defaults("run")`).

    `name` is the value of `--name`. Raises CheckFailed with all problems at once. With a subset of `rules`, the plan
    may violate the other rules and must not be submitted.
    """
    user, _ = effective(user, defaults, name)
    parts, problems = _check(user, defaults, rules)
    if checks.has_errors(problems):
        raise CheckFailed(problems)
    warnings = tuple(map(str, problems))
    if len(parts) < 2:
        return _plan(parts[0].user if parts else user, defaults, warnings)
    first, *others = (replace(_plan(part.user, defaults, warnings), alternative=part.alternative) for part in parts)
    return replace(first, others=tuple(others))


def _plan(user: Values, defaults: Values, warnings: tuple[str, ...]) -> LaunchPlan:
    """Return the plan of valid values that need one run."""
    user = without_ended(user, with_defaults(user, defaults).tree)
    values = with_defaults(user, defaults)
    tree = values.tree
    return LaunchPlan(
        name=tree["run"]["name"],
        kind=RunKind(tree["run"]["kind"]),
        namespace=tree["team"]["namespace"] or tree["team"]["name"] or "default",
        config=run_config(tree, table_of(tree)),
        user=user,
        values=values,
        warnings=warnings,
    )


def _check(user: Values, defaults: Values, rules: checks.Rules | None = None) -> tuple[Sequence[Split], list[Problem]]:
    """Return the runs that slice.any needs, if it is set, and the problems of all its alternatives."""
    try:
        parts = split(user, defaults)
    except ValueError as error:
        origin = user.origin(("slice", "any"))
        file, line = (origin.file, origin.line) if origin else (None, None)
        return [], [Problem("alternatives", checks.ERROR, str(error), file, line, "slice.any")]
    if not parts:
        return [], checks.check(user, with_defaults(user, defaults), rules)
    members = [member for part in parts for member in part.members]
    numbers_of: dict[Problem, list[int]] = {}
    for number, values in members:
        for problem in checks.check(values, with_defaults(values, defaults), rules):
            numbers_of.setdefault(problem, []).append(number)
    return parts, [
        problem
        if len(numbers) == len(members)
        else replace(problem, message=f"slice.any, alternative {number}: {problem.message}")
        for problem, numbers in numbers_of.items()
        for number in numbers[: None if len(numbers) < len(members) else 1]
    ]


def in_alternatives(alternatives: Sequence[tuple[LaunchPlan, Sequence[Problem]]]) -> list[Problem]:
    """Return the problems of alternatives as those of the whole run: warnings, if another alternative has no error."""
    problems = []
    possible = any(not checks.has_errors(of_one) for _, of_one in alternatives)
    for plan, of_one in alternatives:
        for problem in of_one:
            text = problem.message
            if problem.severity == checks.ERROR and possible:
                text = f"{plan.alternative} is dropped: {text}"
                problem = replace(problem, severity=WARNING)
            else:
                text = f"{plan.alternative}: {text}"
            problems.append(replace(problem, message=text))
    return problems


_OF_ALL_SHAPES = {"topologies", "larger", "machineTypes", "dimensions", "coresPerChip"}
_OF_ALL_SHAPES |= {"hostMemoryGiB", "hostCpus", "defaultMachineType"}


def run_config(tree: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run config for valid effective values; see LaunchPlan for its structure."""
    slice_ = accelerators.resolve(tree["slice"], table)
    row = {key: value for key, value in table[slice_.accelerator].items() if key not in _OF_ALL_SHAPES}
    config = checks.own_values("run", tree)
    config["train"] = with_weights(tree, tree["storage"]["mountPath"])
    config["accelerator"] = {
        "name": slice_.accelerator,
        **row,
        "machineType": slice_.machine_type,
        "topology": slice_.topology,
        "chipsPerHost": slice_.chips_per_host,
        "chips": slice_.chips,
        "hosts": slice_.hosts,
    }
    return config


def config_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences between two run configs, one line per key: "train.steps: 30 -> 60".

    `accelerator` is left out: it follows from `slice`. So is how long the run's object is kept, which changes nothing
    in the training. A key that the old config lacks, because its run is of an older version, has the chart's default
    there. A key of other charts, which the configs of older versions have, is left out. So are the nodes to avoid.
    """
    default = dict(_flat(chart_defaults("run").tree))
    before, after = dict(_flat(checks.own_values("run", old))), dict(_flat(new))
    lines = []
    for path in [*before, *(path for path in after if path not in before)]:
        if path[0] == "accelerator" or path == ("run", "keepFinishedDays") or path[:2] == ("worker", "avoidNodes"):
            continue
        if path in before and path in after and _same(before[path], after[path]):
            continue
        if path not in before and path in default and _same(default[path], after[path]):
            continue
        was = _as_text(hide(path, before[path])) if path in before else "(not set)"
        now = _as_text(hide(path, after[path])) if path in after else "(not set)"
        lines.append(f"{dotted(path)}: {was} -> {now}{_consequence(path, after)}")
    return lines


def _consequence(path: tuple[str, ...], after: Mapping[tuple[str, ...], Any]) -> str:
    """Describe an effect of a change that its line does not show."""
    if path == ("train", "steps") and ("train", "learning_rate_schedule_steps") not in after:
        # MaxText's schedule is as long as the run unless it is set.
        return " (every step's learning rate changes with it, unless train.learning_rate_schedule_steps is set)"
    return ""


def _flat(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, (*path, key))
        elif not isinstance(value, Mapping):  # an empty map is skipped
            yield (*path, key), value


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _as_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else spell_value(value)


def without_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a run config that are not the chart's defaults, which are most of it."""

    def kept(tree: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        own = {key: value for key, value in tree.items() if key not in defaults or value != defaults[key]}
        maps = {key for key, value in own.items() if isinstance(value, dict) and isinstance(defaults.get(key), dict)}
        return {key: kept(value, defaults[key]) if key in maps else value for key, value in own.items()}

    return kept(config, chart_defaults("run").tree)
