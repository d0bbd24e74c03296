"""GKE clusters: plan, create, change and delete them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.products.gke.adopt import Adopted
    from launcher.products.gke.plan import Plan
    from launcher.products.gke.steps import Removal
    from launcher.products.gke.up import Changes


def plan_cluster(files: Sequence[str], sets: Sequence[str] = ()) -> Plan:
    """Return the plan of the GKE cluster in the values. Makes no request.

    Raises CheckFailed with the problems of the values: what GKE, or the chart of the queues, would refuse.
    """
    from launcher.config.checks.problems import has_errors
    from launcher.config.plan import CheckFailed
    from launcher.products.gke import plan, rules, values

    cluster_values = values.load(files, sets)
    problems = rules.problems(cluster_values)
    if not has_errors(problems):
        problems += rules.of_queues(cluster_values)
    if has_errors(problems):
        raise CheckFailed(problems)
    return plan.make(cluster_values, tuple(problems))


def cluster_changes(plan: Plan) -> Changes:
    """Compare the plan with what exists. Raises LauncherError if Google Cloud cannot be read."""
    from launcher.products.gke import up

    return up.changes(plan)


def create_cluster(plan: Plan, changes: Changes, report: Callable[[str], None] = lambda _: None) -> None:
    """Create and change what `changes` names, one command after the other. Raises LauncherError at the first failure.

    To continue after a failure or an interruption, compare again and call this again.
    """
    from launcher.helm.client import find_helm
    from launcher.products.gke import up

    find_helm()  # the last step needs it
    up.run(plan, changes, report)


def cluster_script(plan: Plan) -> str:
    """Return a shell script with the commands of create_cluster for an empty project."""
    from launcher.products.gke import up

    return up.script(plan)


def cluster_terraform(plan: Plan) -> dict[str, Any]:
    """Return the plan as a Terraform module, in Terraform's JSON syntax."""
    from launcher.products.gke import terraform

    return terraform.document(plan)


def cluster_removal(plan: Plan, *, bucket: bool = False) -> Removal:
    """Return what delete_cluster deletes, and what it keeps. The bucket is deleted only with `bucket`."""
    from launcher.products.gke import actual, steps

    return steps.removal(plan, actual.read(plan), bucket=bucket)


def delete_cluster(plan: Plan, removal: Removal, report: Callable[[str], None] = lambda _: None) -> None:
    """Delete what `removal` names. Raises LauncherError at the first failure; a later call continues."""
    from launcher.products.gke import up

    up.delete(plan, removal, report)


def adopt_cluster(target: Target = DEFAULT_TARGET) -> Adopted:
    """Return values for an existing cluster: flavors and quota from its nodes; on GKE, the key `gke`, too.

    Raises LauncherError if the cluster cannot be read.
    """
    from launcher.k8s.client import NODE, connect
    from launcher.products.gke import adopt

    cluster = connect(target.context, target.namespace)
    nodes = cluster.list(NODE)
    groups, notes = adopt.from_nodes(nodes)
    adopted = adopt.values_of(groups, adopt.capacity(nodes))
    parts = str(cluster.context).split("_")
    own = {"gke": adopt.of_gke(*parts[1:])} if parts[0] == "gke" and len(parts) == 4 else {}
    return adopt.Adopted({**own, **adopted.values}, [*notes, *adopted.notes])
