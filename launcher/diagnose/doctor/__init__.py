"""`launcher doctor`: check whether this machine and this cluster are ready for runs.

machine.py checks this machine. collect.py reads all that the rules need from the cluster, in parallel. components.py,
queues.py and permissions.py are the rules: pure functions from the collected objects to findings. Products add rules.
Objects that this user may not read are reported as `unknown`, not as a problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from launcher import plugins
from launcher.config import versions
from launcher.diagnose.doctor import collect, components, machine, permissions, queues
from launcher.diagnose.doctor.finding import CLUSTER, Finding, Level, as_text, clause, has_problems, summary
from launcher.errors import LauncherError
from launcher.k8s.errors import ClusterError
from launcher.k8s.kubeconfig import nowhere

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster
    from launcher.k8s.target import Target

__all__ = ["Finding", "Level", "as_text", "examine", "has_problems", "summary"]


def examine(target: Target) -> list[Finding]:
    """Return all findings on this machine and, if the target has one, on its cluster.

    Raises LauncherError only if the checkout or wheel itself is broken. Problems of the machine or cluster are
    findings.
    """

    there = target.includes_cluster
    findings = list(machine.examine(cluster=there))
    if not there:
        if not target.local:
            says = f"{nowhere() or 'there is no kubeconfig'}, so runs are possible only on this machine."
            hint = "On GKE: gcloud container clusters get-credentials NAME."
            findings.append(Finding(CLUSTER, Level.WARNING, "kubeconfig", says, hint))
        return findings
    try:
        cluster = target.cluster()
    except LauncherError as error:
        return [*findings, Finding(CLUSTER, Level.PROBLEM, "kubeconfig", clause(error.message), error.hint)]
    return [*findings, *_cluster(cluster)]


def _cluster(cluster: Cluster) -> Iterator[Finding]:

    where = f"{cluster.description}, user {cluster.user}." if cluster.user else f"{cluster.description}."
    yield Finding(CLUSTER, Level.OK, "kubeconfig", where)
    try:
        text = cluster.version()
    except ClusterError as error:
        # Stop if the API server does not answer. A user without access to the version may still have other access.
        yield Finding(CLUSTER, Level.PROBLEM, "API server", clause(error.message), error.hint)
        if error.status != 403:
            return
    else:
        yield _kubernetes(text, versions.supported("kubernetes"))
    yield from _rest(cluster)


def _kubernetes(text: str, fits: Any) -> Finding:

    version = versions.parse(text)
    says = f"Kubernetes {text}; supported versions are {fits}."
    if version is None or version > fits.newest:
        return Finding(CLUSTER, Level.WARNING, "API server", f"{says} This version is newer or unknown.")
    if version < fits.oldest:
        return Finding(CLUSTER, Level.PROBLEM, "API server", f"{says} This version is too old.", "Upgrade the cluster.")
    return Finding(CLUSTER, Level.OK, "API server", f"answers, Kubernetes {text}.")


def _rest(cluster: Cluster) -> Iterator[Finding]:
    sight = collect.collect(cluster)
    if sight.own_namespace.why is None and sight.own_namespace.seen is None:
        says = f"the namespace {cluster.namespace} does not exist, so it can have no runs."
        hint = "Choose another with -n; charts/queues creates one for each team."
        yield Finding(CLUSTER, Level.PROBLEM, "namespace", says, hint)
    yield from components.examine(sight, components.has_tpus(sight))
    yield from queues.examine(sight)
    for hook in plugins.hooks("doctor"):
        yield from hook(cluster, sight)
    yield from permissions.examine(sight)
    for sentence in sorted(cluster.unreadable):
        yield Finding(CLUSTER, Level.WARNING, "objects", f"{clause(sentence)} It is left out here.")
