"""Plan, check and render runs: from values, without a cluster, except for `check` with `live`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher.api._backend import backend_for
from launcher.api._values import Files, Sets, load
from launcher.api.alternatives import alternatives, in_alternatives
from launcher.config.kinds import RunKind
from launcher.config.values.tree import with_defaults
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.config.checks.rules import Problem
    from launcher.config.plan import LaunchPlan
    from launcher.config.values.tree import Values
    from launcher.helm.render import Rendering

# The chart that holds the defaults of every kind of run.
CHART = "run"


def values(files: Files, sets: Sets = (), *, defaults: bool = False, chart: str = "run") -> Values:
    """Return the values files and `sets` merged as Helm does, not validated; with `defaults`, over the chart's."""
    from launcher.config.values.files import chart_defaults

    user = load(files, sets)
    return with_defaults(user, chart_defaults(chart)) if defaults else user


def plan(files: Files, sets: Sets = (), *, name: str | None = None, force: bool = False) -> LaunchPlan:
    """Return the plan that a submit of these values starts from.

    Raises launcher.config.plan.CheckFailed if a rule is violated. With `force`, the plan can be submitted even if it
    can never start in the cluster, or does not fit.
    """
    from launcher.config.plan import plan_launch
    from launcher.config.values.files import chart_defaults

    made = plan_launch(load(files, sets), chart_defaults(CHART), name=name)
    return replace(made, force=force, others=tuple(replace(each, force=force) for each in made.others))


def check(
    files: Files,
    sets: Sets = (),
    *,
    name: str | None = None,
    live: bool = False,
    target: Target = DEFAULT_TARGET,
) -> Sequence[Problem]:
    """Return the errors and warnings of all rules that need no chips, and the misfit that an earlier forecast found.

    If a values file cannot be read, return only that problem.

    If there are no other errors, also return what only a submit would find: for a local run, problems with the text,
    the tokenizer and this machine; with `live`, for a run in a cluster, the problems that only the cluster can detect.
    """
    from launcher.config.checks.problems import error_in_file, has_errors
    from launcher.config.plan import check_launch, plan_launch
    from launcher.config.values.files import chart_defaults
    from launcher.config.values.reader import InvalidFile
    from launcher.forecast import known_forecast

    try:
        user = load(files, sets)
    except InvalidFile as error:
        return [error_in_file(error)]
    found = check_launch(user, chart_defaults(CHART), name=name)
    if has_errors(found):
        return found
    wanted = plan_launch(user, chart_defaults(CHART), name=name)
    of_each = []
    for each in alternatives(wanted):
        misfit = known_forecast.problem(each)
        of_one = [] if misfit is None else [misfit]
        if (live or each.kind is RunKind.LOCAL) and not has_errors([*found, *of_one]):
            of_one += backend_for(each, target).problems(each)
        of_each.append((each, of_one))
    return [*found, *(in_alternatives(of_each) if wanted.others else of_each[0][1])]


def render(plan: LaunchPlan) -> Rendering:
    """Return the manifest that a submit would create. Requires Helm, but no cluster."""
    from launcher.helm.render import render

    return render(plan)
