"""Install Helm releases of charts/queues, charts/ray-cluster and charts/serve.

`plan_release` reads and compares, and changes nothing. `install` applies the plan. So `diff` and `install` cannot
diverge.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from launcher.config import versions
from launcher.config.suggest import join_or
from launcher.errors import Detached, LauncherError
from launcher.helm import diff
from launcher.helm.client import Helm, HelmError, Release, RulesBroken
from launcher.k8s import objects
from launcher.k8s.client import NAMESPACE
from launcher.k8s.objects import Manifest
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.releases import readiness
from launcher.releases import values as release_values
from launcher.releases.users import QueueUsers, of_change

if TYPE_CHECKING:
    from launcher.config.values.tree import Values
    from launcher.k8s.client import Cluster

Say = Callable[[str], None]

# An operation older than this counts as dead: Helm times out after 5 minutes, and so does `install`.
_DEAD_SECONDS = 600
_HELM_SECONDS = 300


@dataclass(frozen=True)
class ReleasePlan:
    """The planned state of a release, and the changes to get there.

    `history` has its revisions so far, `rendered` its new objects, and `changes` one entry for each object.
    `recovery` is a sentence that describes the recovery from an earlier operation that died, or "". `users` are the
    runs that use what the changes remove, `kept` the namespaces that the release no longer has, and `unseen` has a
    sentence for each object whose users could not be determined.
    """

    chart: str
    name: str
    namespace: str
    user: Values
    cluster: Cluster = field(repr=False)
    helm: Helm = field(repr=False)
    history: list[Release]
    rendered: list[Manifest]
    changes: list[diff.ObjectChange]
    recovery: str = ""
    users: QueueUsers = field(default_factory=QueueUsers)
    kept: Sequence[str] = ()
    unseen: Sequence[str] = ()

    @property
    def description(self) -> str:
        """The release with its chart, cluster, context and namespace."""
        return f"{self.name} ({self.chart}): {self.cluster.description}"

    @property
    def changed(self) -> bool:
        """Whether there is anything to do."""
        settled = bool(self.history) and self.history[-1].status == "deployed"
        return not settled or any(change.action != diff.SAME for change in self.changes)

    @property
    def notes(self) -> list[str]:
        """A line for each namespace that is kept and for each run that the changes concern."""
        lines = [
            *(f"= {title} is kept, with everything in it" for title in self.kept),
            *(f"! {run}: {reason}" for run, reason in self.users.losing.items()),
            *(f"? {sentence}" for sentence in self.unseen),
        ]
        for flavor, runs in self.users.retired.items():
            lines += [f"! {run}: it holds the flavor {flavor}, which stays with quota 0 until it ends" for run in runs]
        if self.users.retired:
            lines.append(
                "Until these runs end, the queues can admit runs to all quota of the new flavors. If those select "
                "the same nodes, hold the queues until then: clusterQueues.NAME.stopPolicy: Hold."
            )
        return lines

    def as_json(self) -> Manifest:
        return {
            "release": self.name,
            "chart": self.chart,
            "namespace": self.namespace,
            "context": self.cluster.context,
            "revision": self.history[-1].revision if self.history else 0,
            "changes": [change for change in self.changes if change.action != diff.SAME],
            "kept": list(self.kept),
            "neededBy": list(self.users.losing),
            "retired": {flavor: list(runs) for flavor, runs in self.users.retired.items()},
            "unseen": list(self.unseen),
        }


def plan_release(
    chart: str,
    files: Sequence[str],
    sets: Sequence[str] = (),
    *,
    name: str | None = None,
    target: Target = DEFAULT_TARGET,
    recover: bool = False,
) -> ReleasePlan:
    """Return what `install` of a chart (queues, ray-cluster) with these values would change. Changes nothing.

    `recover` treats an unfinished operation of another helm command as failed, even if it began a moment ago.

    Raises LauncherError if the values are invalid, if the chart or the API server rejects them, or if an earlier
    operation blocks the release.
    """
    user, effective = release_values.load(chart, files, sets)
    release = name or default_name(chart, effective.tree)
    cluster = _cluster_for(chart, effective.tree, target)
    helm = helm_for(cluster)
    _ = cluster.version()  # if the API server does not answer, report the client's error
    _served(chart, cluster)
    history = helm.history(release, cluster.namespace)
    _is_ours(history, chart, cluster)
    recovery = _recovery(history, recover)
    try:
        rendered = helm.template(chart, release, cluster.namespace, user.tree, live=True, upgrade=bool(history))
    except RulesBroken as error:
        raise _rules_broken(error, user) from error
    last = _last_good(history)
    owner = diff.Owner(release, cluster.namespace)
    before = helm.objects(last) if last else []
    changes = diff.compare(cluster, rendered, before, owner=owner)
    users = of_change(cluster, rendered, changes)
    after = set(map(objects.title, rendered))
    kept = [objects.title(obj) for obj in before if diff.is_kept(obj) and objects.title(obj) not in after]
    return ReleasePlan(
        chart,
        release,
        cluster.namespace,
        user,
        cluster,
        helm,
        history,
        rendered,
        changes,
        recovery,
        users,
        kept,
        sorted(cluster.unreadable),  # they may be runs
    )


def install(
    plan: ReleasePlan, say: Say = lambda _: None, *, force: bool = False, seconds: float | None = None
) -> list[str]:
    """Apply the plan and wait until the objects are ready; return what is not ready yet, in sentences.

    Waits at most `seconds` (None: the default of the chart). Objects that were accepted but are not ready are kept,
    such as a queue that Kueue reports as inactive or a cluster that waits for chips.

    Raises LauncherError if runs use what the plan removes, unless `force` is set, and if Kubernetes rejects a part of
    the release; Helm then rolls back the rest.
    """
    if plan.users.losing and not force:
        runs = list(plan.users.losing)
        shown = runs[:5] + [f"{len(runs) - 5} more"] * (len(runs) > 5)
        raise LauncherError(
            f"Runs use what this change removes: {join_or(shown, 'and')}; nothing was changed.",
            "Cancel them first, or keep their queue and flavor until they end (clusterQueues.NAME.stopPolicy: Hold "
            "admits no others). Or add --force: runs that wait in a removed queue never start, and no quota counts the "
            "others.",
        )
    if plan.recovery:
        say(plan.recovery)
        _recover(plan)
    if plan.changed:
        began = time.time()
        try:
            say(f"{'Upgrading' if _last_good(plan.history) else 'Installing'} {plan.name} …")
            warnings = plan.helm.install_or_upgrade(
                plan.chart, plan.name, plan.namespace, plan.user.tree, timeout=_HELM_SECONDS
            )
        except HelmError as error:
            _take_back_namespaces(plan, began)
            raise _taken_back(plan, error) from error
        except KeyboardInterrupt:  # Helm got it as well and has rolled back
            _take_back_namespaces(plan, began)
            raise Detached(f"Interrupted. {_left(plan)}") from None
        for line in warnings:
            say(line)
        diff.apply_remaining(plan.cluster, plan.rendered, plan.changes)
    limit = readiness.SECONDS[plan.chart] if seconds is None else seconds
    try:
        return readiness.wait(plan.cluster, plan.rendered, say, limit) if limit > 0 else []
    except KeyboardInterrupt:
        raise Detached(
            f"The release {plan.name} is installed; run the same command again to see whether it is ready."
        ) from None


def helm_for(cluster: Cluster) -> Helm:
    """Return Helm for the same cluster. Raises LauncherError if the environment points Helm to another one."""
    for name in (
        "HELM_KUBEAPISERVER",
        "HELM_KUBETOKEN",
        "HELM_KUBEASUSER",
        "HELM_KUBEASGROUPS",
        "HELM_KUBECAFILE",
        "HELM_KUBETLS_SERVER_NAME",
        "HELM_KUBEINSECURE_SKIP_TLS_VERIFY",
        "HELM_KUBECONTEXT",
    ):
        # Helm is given the context, unless it uses the service account of its pod.
        if os.environ.get(name) and (name != "HELM_KUBECONTEXT" or cluster.context == "in-cluster"):
            raise LauncherError(
                f"{name} is set, so Helm would use another API server, another user or another certificate than the "
                f"context {cluster.context}.",
                f"unset {name}; --context chooses the cluster.",
            )
    return Helm(None if cluster.context == "in-cluster" else cluster.context, where=cluster.name)


def alive(release: Release) -> bool:
    """Return whether an operation on the release may still be running."""
    return release.pending and release.age < _DEAD_SECONDS


def busy(release: Release) -> LauncherError:
    return LauncherError(
        f"The release {release.name} has been {release.status} for {release.age:.0f} s: another Helm process is "
        "changing it or has died; nothing was changed.",
        f"Wait until it is done: helm status {release.name} -n {release.namespace}. After {_DEAD_SECONDS // 60} "
        "minutes, install treats it as dead and repairs the release; if you know that it died, add --recover.",
    )


# --- inside -----------------------------------------------------------------------------------------------------


def default_name(chart: str, tree: Manifest) -> str:
    if chart == "queues":
        return "queues"
    if chart == "serve":
        raise LauncherError("The served model has no name.", "Write it after serve.")
    name = str((tree.get("run") or {}).get("cluster") or "")
    if not name:
        raise LauncherError(
            "The Ray cluster has no name.",
            "Write it after ray-cluster, or set run.cluster in the values, which runs of kind ray-cluster need.",
        )
    return name


def _cluster_for(chart: str, tree: Manifest, target: Target) -> Cluster:
    """Return the cluster. A team's release is in the team's namespace, as is its Ray cluster or served model."""
    team = tree.get("team") or {} if chart != "queues" else {}
    namespace = team.get("namespace") or team.get("name")
    if not namespace:
        return target.cluster()
    if target.namespace not in (None, namespace):
        raise LauncherError(
            f"The values put the release into the namespace {namespace} (team), but --namespace is {target.namespace}.",
            "Leave out --namespace, or change team.namespace.",
        )
    return replace(target, namespace=namespace).cluster()


def _served(chart: str, cluster: Cluster) -> None:
    group, version, operator, component = {
        "queues": ("kueue.x-k8s.io", "v1beta2", "Kueue", "kueue"),
        "ray-cluster": ("ray.io", "v1", "KubeRay", "kuberay"),
        "serve": ("ray.io", "v1", "KubeRay", "kuberay"),
    }[chart]
    if version not in cluster.served(group):
        raise LauncherError(
            f"{cluster.name[:1].upper()}{cluster.name[1:]} does not serve {group}/{version}; charts/{chart} needs "
            f"{operator} {versions.supported(component)}; nothing was changed.",
            "launcher doctor shows what the cluster has.",
        )


def _is_ours(history: Sequence[Release], chart: str, cluster: Cluster) -> None:
    if history and history[-1].chart_name != chart:
        release = history[-1]
        raise LauncherError(
            f"The release {release.name} in the namespace {release.namespace} of {cluster.name} was installed from the "
            f"chart {release.chart}, not from {chart}; nothing was changed.",
            "Choose another name for the release, or another namespace with -n.",
        )


def _last_good(history: Sequence[Release]) -> Release | None:
    """Return the revision whose objects are in the cluster, as far as Helm knows.

    A deployed revision takes precedence, because Helm also marks a failed, rolled-back revision as superseded.
    """
    for status in ("deployed", "superseded"):
        if good := [release for release in history if release.status == status]:
            return good[-1]
    return history[-1] if history and history[-1].status != "uninstalled" else None


def _recovery(history: Sequence[Release], recover: bool) -> str:
    """Return a sentence that describes the recovery needed before the release can be changed, or "".

    Raises LauncherError if the recovery may not be safe yet.
    """
    if not history or not history[-1].pending:
        return ""
    last = history[-1]
    if not recover and alive(last):
        raise busy(last)
    what = f"An earlier Helm process died while it changed this release ({last.status} since {last.updated[:19]})"
    deployed = [release for release in history if release.status == "deployed"]
    if last.status == "uninstalling":
        return f"{what}; the remaining objects are removed first."
    if deployed:
        return f"{what}; revision {deployed[-1].revision}, the last deployed one, is restored first."
    return f"{what}; its objects are completed first, so nothing that it created is lost."


def _recover(plan: ReleasePlan) -> None:
    last = plan.history[-1]
    deployed = [release for release in plan.history if release.status == "deployed"]
    if last.status == "uninstalling":
        plan.helm.uninstall(plan.name, plan.namespace, timeout=_HELM_SECONDS)
    else:
        # If no revision was deployed, roll back to the last one: this creates missing objects and keeps existing ones.
        revision = deployed[-1].revision if deployed else last.revision
        plan.helm.rollback(plan.name, plan.namespace, revision, timeout=_HELM_SECONDS)


def _take_back_namespaces(plan: ReleasePlan, began: float) -> None:
    """Delete the namespaces that this attempt created at `began` or later. Helm keeps them with their contents."""

    for change in plan.changes:
        if (change.kind, change.action) == (NAMESPACE.kind, diff.CREATE):
            live = plan.cluster.get(NAMESPACE, change.name)
            if live is None or objects.annotation(live, "meta.helm.sh/release-name") != plan.name:
                continue
            if objects.parse_time(live["metadata"]["creationTimestamp"]).timestamp() >= int(began):  # whole seconds
                plan.cluster.delete(NAMESPACE, change.name, uid=objects.uid(live))


def _rules_broken(error: RulesBroken, user: Values) -> LauncherError:
    return LauncherError("\n".join(str(release_values.of_chart(sentence, user)) for sentence in error.sentences))


def _taken_back(plan: ReleasePlan, error: HelmError) -> LauncherError:
    """Return the error for a failure of Helm: its cause and what it left."""
    if isinstance(error, RulesBroken):
        return _rules_broken(error, plan.user)
    return LauncherError(f"{error.message} {_left(plan)}", error.hint)


def _left(plan: ReleasePlan) -> str:
    """Return a sentence that describes what a failed attempt left."""
    try:
        now = plan.helm.history(plan.name, plan.namespace)
    except LauncherError:
        return f"The state of the release {plan.name} is unknown."
    if now == plan.history:
        return "Nothing was changed."
    if not now:
        return "The objects that it created were removed again."
    if now[-1].status == "deployed":
        return f"The release {plan.name} has its previous state (revision {now[-1].revision})."
    return f"The release {plan.name} has the status {now[-1].status}; run the same command to try again."
