"""The submitter of a plan: with the checks that need the cluster (launcher.diagnose.preflight)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from launcher import hooks
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError
from launcher.k8s.kubeconfig import NoCluster
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.base import Submitter
    from launcher.config.plan import LaunchPlan


def backend_for(plan: LaunchPlan, target: Target = DEFAULT_TARGET) -> Submitter:
    """Return the backend for a run of the plan's kind. Raises LauncherError if `target` and the plan conflict."""
    if plan.kind is RunKind.LOCAL:
        if not target.includes_local:
            raise LauncherError("run.kind is local: the run goes to this machine; leave out --context and --namespace.")
        from launcher.backends.local.submitter import LocalSubmitter

        return LocalSubmitter()
    if target.local:
        raise LauncherError(
            f"run.kind is {plan.kind}: the run goes to a cluster; leave out --local, or use --set run.kind=local."
        )
    team = plan.config["team"]
    named = team["namespace"] or team["name"]
    if named and target.namespace not in (None, named):
        raise LauncherError(
            f"The values set the namespace {named} (team), but --namespace is {target.namespace}.",
            "Leave out --namespace, or change team.namespace.",
        )
    try:
        cluster = replace(target, namespace=named or target.namespace).cluster()
    except NoCluster as error:
        raise NoCluster(error.message, f"{error.hint} To run on this machine: --set run.kind=local.") from error
    if not plan.kind.has_object:
        return hooks.submitter(plan.kind, cluster)
    from launcher.backends.kubernetes.submitter import KubernetesSubmitter
    from launcher.diagnose import preflight

    return KubernetesSubmitter(cluster, preflight.problems, has_room=preflight.has_room)
