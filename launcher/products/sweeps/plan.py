"""Plan the runs of a sweep from values and `--sweep` options. Pure; all problems are reported at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from launcher.config.checks.problems import Problem, has_errors
from launcher.config.kinds import RunKind
from launcher.config.plan import CheckFailed, LaunchPlan, SweepMember, plan_launch
from launcher.config.values import assignment
from launcher.config.values.assignment import Axis
from launcher.config.values.tree import SWEEP, Origin, Values, set_value, with_defaults
from launcher.errors import LauncherError

type Sweeps = Sequence[str] | Mapping[str, Iterable[Any]]
LIMIT = 1000
"""The maximum number of runs in a sweep. Each run is checked, rendered and created."""

# One submit has one target, and the names of the runs derive from the name of the sweep.
_NOT_SWEPT = {
    "run.name": "the runs are named after the sweep, with a number.",
    "run.kind": "all runs of a sweep are of one kind.",
    "team": "all runs of a sweep belong to one team.",
}


@dataclass(frozen=True)
class SweepPlan:
    """The plan of a sweep: `plans`, in the order of the combinations, for the runs NAME-1, NAME-2, …

    `keys` are the swept keys as the user wrote them; `warnings` are sentences without duplicates.
    """

    name: str
    keys: tuple[str, ...]
    plans: tuple[LaunchPlan, ...] = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def kind(self) -> RunKind:
        return self.plans[0].kind


def plan_sweep(user: Values, defaults: Values, sweeps: Sweeps, *, name: str | None = None) -> SweepPlan:
    """Return the plans for every combination of the values of `sweeps` ("train.learning_rate=1e-4,3e-4").

    It can also be a mapping of keys to lists of values: {"train.learning_rate": [1e-4, 3e-4]}. The last one changes
    fastest. The combinations override the user's values and the chart's `defaults`. `name` is the value of `--name`.
    Raises CheckFailed with the problems of all combinations, without duplicates, and LauncherError if sweeps cannot be
    combined.
    """
    if isinstance(sweeps, Mapping):
        keys = enumerate(sweeps.items(), start=1)
        axes = [assignment.axis(key, values, Origin(SWEEP, number)) for number, (key, values) in keys]
    else:
        axes = [assignment.read_sweep(text, Origin(SWEEP, number)) for number, text in enumerate(sweeps, start=1)]
    _check_axes(axes)
    if name is not None:
        user = set_value(user, ("run", "name"), name, Origin("--name", 1))
    base = _name(with_defaults(user, defaults))
    plans: list[LaunchPlan] = []
    problems: dict[tuple[Any, ...], Problem] = {}
    for number, values in enumerate(itertools.product(*(axis.values for axis in axes)), start=1):
        root = reduce(lambda root, pair: assignment.put(root, *pair), zip(axes, values, strict=True), user.root)
        layered = Values(root)
        member = SweepMember(base, number, dict(zip((axis.key for axis in axes), values, strict=True)))
        run = f"{base}-{number}"
        if base:  # the rules report a missing name
            layered = set_value(layered, ("run", "name"), run, user.origin(("run", "name")) or Origin("--name", 1))
        try:
            plan = plan_launch(layered, defaults)
            if plan.others:
                raise LauncherError(
                    "A sweep cannot have alternatives in slice.any that differ in more than provisioning and "
                    "reservation.",
                    "Set slice.any: [] for the sweep, or submit each run on its own.",
                )
            plans.append(replace(plan, member=member))
        except CheckFailed as failed:
            for problem in failed.problems:
                # Problems that differ only in the run's name are duplicates. For an invalid name, the last and
                # longest one is reported.
                says = "" if problem.rule == "name" else problem.message.replace(run, base)
                problems[problem.rule, problem.file, problem.line, problem.key, says] = problem
    if has_errors(problems.values()):
        raise _failed(list(problems.values()), base, _size(axes))
    warnings = dict.fromkeys(warning.replace(plan.name, base) for plan in plans for warning in plan.warnings)
    return SweepPlan(base, tuple(axis.key for axis in axes), tuple(plans), tuple(warnings))


def _name(effective: Values) -> str:
    run = effective.tree.get("run")
    name = run.get("name") if isinstance(run, Mapping) else None
    return name if isinstance(name, str) else ""


def _size(axes: Sequence[Axis]) -> int:
    return math.prod(len(axis.values) for axis in axes)


def _check_axes(axes: Sequence[Axis]) -> None:
    """Raise LauncherError if the sweeps cannot be combined, or have too many combinations."""
    for axis in axes:
        path = ".".join(map(str, axis.parts))
        for key, why in _NOT_SWEPT.items():
            if f"{path}.".startswith(f"{key}.") or f"{key}.".startswith(f"{path}."):
                raise LauncherError(f"{axis.origin}: {axis.key} cannot be swept: {why}")
    for first, second in itertools.combinations(axes, 2):
        shorter = min(len(first.parts), len(second.parts))
        if first.parts[:shorter] == second.parts[:shorter]:
            raise LauncherError(
                f"{first.origin} and {second.origin} set the same key: {first.key} and {second.key}.",
                "Give all values of a key in one --sweep.",
            )
    if _size(axes) > LIMIT:
        of = " x ".join(str(len(axis.values)) for axis in axes)
        raise LauncherError(f"The sweep has {of} = {_size(axes):,} combinations; the maximum is {LIMIT:,}.")


def _failed(problems: list[Problem], base: str, runs: int) -> CheckFailed:
    failed = CheckFailed(problems)
    if any(problem.rule == "name" for problem in problems):
        failed.hint = f"The runs of the sweep are named {base}-1 to {base}-{runs}."
    return failed
