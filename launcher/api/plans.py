"""Plan, check and render runs: from values, without a cluster, except for `check` with `live`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from launcher import hooks
from launcher.api._values import Files, Sets, load
from launcher.config.kinds import RunKind
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.config.checks.problems import Problem
    from launcher.config.plan import LaunchPlan
    from launcher.config.values.tree import Values

# The chart that holds the defaults of every kind of run.
CHART = "run"


def values(
    files: Files, sets: Sets = (), *, name: str | None = None, defaults: bool = False, chart: str = "run"
) -> Values:
    """Return the values files and `sets` merged as Helm does, not validated; with `defaults`, over the chart's.

    `name` is the value of run.name, as for `plan`.
    """
    from launcher.config.plan import effective
    from launcher.config.values.files import chart_defaults

    user, whole = effective(load(files, sets), chart_defaults(chart), name)
    return whole if defaults else user


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
    from launcher.config.checks.rules import other_charts
    from launcher.config.plan import check_launch, in_alternatives, plan_launch
    from launcher.config.values.files import chart_defaults
    from launcher.config.values.reader import InvalidFile

    try:
        user = load(files, sets)
    except InvalidFile as error:
        return [error_in_file(error)]
    problems = [*check_launch(user, chart_defaults(CHART), name=name), *other_charts(CHART, user)]
    if has_errors(problems):
        return problems
    wanted = plan_launch(user, chart_defaults(CHART), name=name)
    of_each = []
    for alternative in wanted.alternatives:
        misfit = hooks.misfit(alternative)
        of_one = [] if misfit is None else [misfit]
        if (live or alternative.kind is RunKind.LOCAL) and not has_errors([*problems, *of_one]):
            from launcher.api._backend import backend_for

            of_one += backend_for(alternative, target).problems(alternative)
        of_each.append((alternative, of_one))
    return [*problems, *(in_alternatives(of_each) if wanted.others else of_each[0][1])]


def refuse_misfits(*plans: LaunchPlan) -> None:
    """Raise launcher.config.plan.CheckFailed if an earlier forecast found that a plan does not fit.

    The error names the change that makes the plan fit, if one is known. Compiles nothing, and accepts a forced plan.
    """
    from launcher.config.plan import CheckFailed

    misfits = [misfit for plan in plans if not plan.force and (misfit := hooks.misfit(plan)) is not None]
    if misfits:
        failed = CheckFailed(list(dict.fromkeys(misfits)))
        failed.hint = "launcher forecast shows the details; --force submits it anyway."
        raise failed
