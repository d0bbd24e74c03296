"""The differences between the plan of a cluster and the cluster, as findings of `launcher doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.diagnose.doctor.finding import CLUSTER_PLAN, Finding, Level
from launcher.errors import LauncherError
from launcher.products.gke import steps, up
from launcher.products.gke.api import plan_cluster
from launcher.products.gke.plan import Plan

_DIFFERS = {steps.CREATE: "is missing", steps.CHANGE: "differs", steps.DELETE: "is not in the values"}


def of_values(files: Sequence[str], sets: Sequence[str]) -> list[Finding]:
    """Return the findings of the cluster in the values. Changes nothing."""
    return list(examine(plan_cluster(files, sets)))


def examine(plan: Plan) -> Iterator[Finding]:
    """Yield a finding for each difference, or one that there is none. Changes nothing."""
    subject = f"cluster {plan.name}"
    try:
        changes = up.changes(plan)
    except LauncherError as error:
        yield Finding(CLUSTER_PLAN, Level.UNKNOWN, subject, error.message, error.hint)
        return
    for problem in plan.warnings:
        yield Finding(CLUSTER_PLAN, Level.WARNING, subject, str(problem))
    for sentence in changes.conflicts:
        yield Finding(
            CLUSTER_PLAN, Level.PROBLEM, subject, f"{sentence.rstrip('.')}.", "Correct the values of the cluster."
        )
    for step in changes.steps:
        detail = f" ({step.detail})" if step.detail else ""
        yield Finding(
            CLUSTER_PLAN,
            Level.WARNING,
            step.what,
            f"{_DIFFERS[step.action]}{detail}.",
            "launcher cluster up changes it.",
        )
    for note in changes.notes:
        level = Level.UNKNOWN if note.startswith("?") else Level.WARNING
        yield Finding(CLUSTER_PLAN, level, subject, f"{note.lstrip('=!? ').rstrip('.')}.")
    if not changes.conflicts and not changes.steps and not changes.notes:
        yield Finding(CLUSTER_PLAN, Level.OK, subject, "is as in the values.")
