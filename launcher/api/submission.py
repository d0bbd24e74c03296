"""Submit runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.api._backend import backend_for
from launcher.api.alternatives import choose_alternative
from launcher.api.plans import refuse_misfits
from launcher.backends.base import Preview
from launcher.config.kinds import RunKind
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.base import Submission
    from launcher.config.plan import LaunchPlan


def preview(plan: LaunchPlan, *, accept_changes: bool = False, target: Target = DEFAULT_TARGET) -> Preview:
    """Return what `submit` would do now. Creates nothing; raises what `submit` would raise.

    With a kubeconfig, the API server checks the run in a dry run. Without one, only the values are checked.
    """
    if plan.kind is not RunKind.LOCAL and not target.includes_cluster:
        return Preview(plan.config, "The values are valid. No kubeconfig was found, so no cluster checked them.")
    backend = backend_for(plan, target)
    return backend.preview(choose_alternative(plan, backend)[0], accept_changes=accept_changes)


def submit(plan: LaunchPlan, *, accept_changes: bool = False, target: Target = DEFAULT_TARGET) -> Submission:
    """Start the run, or find or resume the run with its name. Returns immediately.

    With `accept_changes`, continue from the last checkpoint with a config that differs from the run's. If slice.any has
    alternatives that need runs of their own, submit the first with free quota; launcher.api.Alternatives tries the next
    one if it waits too long. Raises CheckFailed if an earlier forecast found that the run does not fit.
    """
    backend = backend_for(plan, target)
    plan, _ = choose_alternative(plan, backend)
    refuse_misfits(plan)
    return backend.submit(plan, accept_changes=accept_changes)
