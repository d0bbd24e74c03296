"""Releases of charts/queues and charts/ray-cluster: what one is to be, what that would change, and how it is done.

`plan` reads and compares, and changes nothing; `install` does what the plan says. So `diff` and `install` cannot
diverge.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from launcher import diff, objects, readiness, release_values
from launcher.errors import LauncherError
from launcher.guess import either, nearest
from launcher.helm import Helm, HelmError, Release, RulesBroken
from launcher.helm_errors import NoRelease

if TYPE_CHECKING:
    from launcher.cluster import Cluster
    from launcher.place import Place
    from launcher.tree import Values

Object = dict[str, Any]
Say = Callable[[str], None]

CHARTS = ("queues", "ray-cluster")
"""The charts that are installed; a run is no release."""

# An operation that is older than this is taken to be dead: Helm gives up after 5 minutes, and so does `install`.
_DEAD_SECONDS = 600
_HELM_SECONDS = 300


@dataclass(frozen=True)
class ReleasePlan:
    """A release as it is to be, and what that changes.

    `history` are its revisions so far, `rendered` its new objects, `changes` one entry for each object, `recovery`
    what is to be done first, in words, where an earlier operation died.
    """

    chart: str
    name: str
    namespace: str
    user: Values
    cluster: Cluster = field(repr=False)
    helm: Helm = field(repr=False)
    history: list[Release]
    rendered: list[Object]
    changes: list[diff.ObjectChange]
    recovery: str = ""

    @property
    def where(self) -> str:
        """The release with all that says where it is."""
        return f"{self.name} ({self.chart}): {self.cluster.where}"

    @property
    def changed(self) -> bool:
        """Whether there is anything to do."""
        settled = bool(self.history) and self.history[-1].status == "deployed"
        return not settled or any(change.action != diff.SAME for change in self.changes)

    def as_json(self) -> Object:
        return {
            "release": self.name,
            "chart": self.chart,
            "namespace": self.namespace,
            "context": self.cluster.context,
            "revision": self.history[-1].revision if self.history else 0,
            "changes": [change.as_json() for change in self.changes if change.action != diff.SAME],
        }


def plan(
    chart: str, name: str | None, files: Sequence[str], sets: Sequence[str], place: Place, *, recover: bool = False
) -> ReleasePlan:
    """What installing, or upgrading to, these values would do. Changes nothing.

    `recover` takes an operation that is not finished for dead, however young it is. Raises LauncherError for all
    that the values, the chart, the API server or an earlier operation have against it.
    """
    user, effective = release_values.load(chart, files, sets)
    release = name or _default_name(chart, effective.tree)
    cluster = _cluster_for(chart, effective.tree, place)
    helm = Helm(cluster.context if cluster.context != "in-cluster" else None, where=cluster.name)
    _ = cluster.version()  # an API server that does not answer is told in the door's words
    _served(chart, cluster)
    history = helm.history(release, cluster.namespace)
    _is_ours(history, chart, cluster)
    recovery = _recovery(history, recover)
    try:
        rendered = helm.template(chart, release, cluster.namespace, user.tree, live=True, upgrade=bool(history))
    except RulesBroken as error:
        sentences = [release_values.with_origins(sentence, user) for sentence in error.sentences]
        raise LauncherError("\n".join(sentences)) from error
    last = _last_good(history)
    owner = diff.Owner(release, cluster.namespace)
    changes = diff.compare(cluster, rendered, helm.objects(last) if last else (), owner=owner)
    return ReleasePlan(chart, release, cluster.namespace, user, cluster, helm, history, rendered, changes, recovery)


def install(plan: ReleasePlan, say: Say, *, seconds: float | None = None) -> list[str]:
    """Do it, and wait until it works: at most `seconds` (None: what the chart needs). What does not work yet.

    Where Kubernetes refuses a part of it, Helm takes the rest back, and HelmError is raised. What was accepted and
    only does not work yet (a queue that Kueue calls inactive, a cluster that waits for chips) stays.
    """
    if plan.recovery:
        say(plan.recovery)
        _recover(plan)
    if plan.changed:
        say(f"{'Upgrading' if _last_good(plan.history) else 'Installing'} {plan.name} …")
        began = time.time()
        try:
            plan.helm.install_or_upgrade(plan.chart, plan.name, plan.namespace, plan.user.tree, timeout=_HELM_SECONDS)
        except HelmError as error:
            _take_back_namespaces(plan, began)
            raise _taken_back(plan, error) from error
        diff.settle(plan.cluster, plan.rendered, plan.changes)
    limit = readiness.SECONDS[plan.chart] if seconds is None else seconds
    return readiness.wait(plan.cluster, plan.rendered, say, limit) if limit > 0 else []


# --- uninstall --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Removal:
    """What uninstalling a release removes, what stays (namespaces, with all in them), and whose runs need it."""

    release: Release
    cluster: Cluster = field(repr=False)
    helm: Helm = field(repr=False)
    removed: list[Object]
    kept: list[Object]
    needed_by: list[str]

    def as_json(self) -> Object:
        return {
            "release": self.release.name,
            "chart": self.release.chart_name,
            "namespace": self.release.namespace,
            "context": self.cluster.context,
            "removed": [called(obj) for obj in self.removed],
            "kept": [called(obj) for obj in self.kept],
            "neededBy": self.needed_by,
        }


def plan_removal(name: str, place: Place) -> Removal:
    """What uninstalling the release would do. Changes nothing; raises LauncherError where it is not Slipway's."""
    cluster = place.cluster()
    helm = Helm(cluster.context if cluster.context != "in-cluster" else None, where=cluster.name)
    _ = cluster.version()
    history = helm.history(name, cluster.namespace)
    if not history:
        raise _no_release(name, cluster, helm)
    release = history[-1]
    if release.status.startswith("pending-") and _seconds_since(release.updated) < _DEAD_SECONDS:
        raise _busy(release)
    found = helm.objects(release)
    if release.chart_name not in (*CHARTS, "run") or not _made_by_slipway(found):
        raise LauncherError(
            f"The release {name} in the namespace {release.namespace} was made from the chart {release.chart}, which "
            "is none of Slipway's; nothing was changed.",
            f"helm uninstall {name} -n {release.namespace} removes it.",
        )
    kept = [obj for obj in found if diff.kept(obj)]
    removed = [obj for obj in found if not diff.kept(obj) and diff.live_object(cluster, obj) is not None]
    return Removal(release, cluster, helm, removed, kept, _runs_in(cluster, removed))


def uninstall(removal: Removal, say: Say, *, force: bool = False, seconds: float = 60) -> list[str]:
    """Remove the release, and wait until its objects are gone; what is still there after `seconds`, in sentences.

    Raises LauncherError where runs need it, unless `force`.
    """
    release = removal.release
    if removal.needed_by and not force:
        shown = removal.needed_by[:5] + [f"{len(removal.needed_by) - 5} more"] * (len(removal.needed_by) > 5)
        raise LauncherError(
            f"Runs wait or run in the queues of {release.name}: {either(shown, 'and')}; nothing was changed.",
            "Cancel them first, or add --force: they then lose their queue, and those that wait never start.",
        )
    removal.helm.uninstall(release.name, release.namespace)
    deadline, told = time.monotonic() + seconds, False
    while left := [obj for obj in removal.removed if diff.live_object(removal.cluster, obj)]:
        if time.monotonic() >= deadline:
            break
        if not told:
            say(f"Waiting: {called(left[0])} is being deleted …")
            told = True
        time.sleep(0.5)
    return [f"{called(obj)} is being deleted, and held until nothing uses it any more." for obj in left]


def called(obj: Object) -> str:
    """An object in a sentence: "LocalQueue research/research"."""
    space = objects.namespace(obj)
    return f"{obj['kind']} {space}/{objects.name(obj)}" if space else f"{obj['kind']} {objects.name(obj)}"


# --- inside -----------------------------------------------------------------------------------------------------


def _default_name(chart: str, tree: Object) -> str:
    if chart == "queues":
        return "queues"
    name = str((tree.get("run") or {}).get("cluster") or "")
    if not name:
        raise LauncherError(
            "The Ray cluster has no name: launcher install ray-cluster NAME …",
            "run.cluster in the values names it, too, and is what runs of kind ray-cluster need.",
        )
    return name


def _cluster_for(chart: str, tree: Object, place: Place) -> Cluster:
    """The cluster; a team's release is kept in the team's namespace, as its Ray cluster is."""
    from dataclasses import replace

    team = tree.get("team") or {} if chart == "ray-cluster" else {}
    namespace = team.get("namespace") or team.get("name")
    if not namespace:
        return place.cluster()
    if place.namespace not in (None, namespace):
        raise LauncherError(
            f"The values put the Ray cluster into the namespace {namespace} (team), and --namespace says "
            f"{place.namespace}.",
            "Leave out --namespace, or change team.namespace.",
        )
    return replace(place, namespace=namespace).cluster()


def _served(chart: str, cluster: Cluster) -> None:
    group, version, operator = {
        "queues": ("kueue.x-k8s.io", "v1beta2", "Kueue 0.16 to 0.19"),
        "ray-cluster": ("ray.io", "v1", "KubeRay 1.5 to 1.7"),
    }[chart]
    if version not in cluster.served(group):
        raise LauncherError(
            f"{cluster.name[:1].upper()}{cluster.name[1:]} does not serve {group}/{version}; charts/{chart} needs "
            f"{operator}; nothing was changed.",
            "launcher doctor shows what the cluster has.",
        )


def _is_ours(history: Sequence[Release], chart: str, cluster: Cluster) -> None:
    if history and history[-1].chart_name != chart:
        release = history[-1]
        raise LauncherError(
            f"The release {release.name} in the namespace {release.namespace} of {cluster.name} is of the chart "
            f"{release.chart}, not of {chart}; nothing was changed.",
            "Choose another name for the release, or another namespace with -n.",
        )


def _last_good(history: Sequence[Release]) -> Release | None:
    """The revision whose objects are in the cluster, as far as Helm knows.

    Helm calls a revision superseded that failed and was rolled back, so the one that is deployed comes first.
    """
    for status in ("deployed", "superseded"):
        if good := [release for release in history if release.status == status]:
            return good[-1]
    return history[-1] if history and history[-1].status != "uninstalled" else None


def _recovery(history: Sequence[Release], recover: bool) -> str:
    """What has to be done before the release can be changed, in words; raises where that may not be safe yet."""
    if not history or not history[-1].pending:
        return ""
    last = history[-1]
    if not recover and _seconds_since(last.updated) < _DEAD_SECONDS:
        raise _busy(last)
    what = f"An earlier helm died at this release ({last.status} since {last.updated[:19]})"
    deployed = [release for release in history if release.status == "deployed"]
    if last.status == "uninstalling":
        return f"{what}; what it left is removed first."
    if deployed:
        return f"{what}; revision {deployed[-1].revision}, the last that was deployed, is brought back first."
    return f"{what}; what it began is completed first, so that nothing that it made is lost."


def _busy(release: Release) -> LauncherError:
    started = _seconds_since(release.updated)
    return LauncherError(
        f"The release {release.name} is {release.status} since {started:.0f} s: another helm is at work on it, or "
        "died; nothing was changed.",
        f"Wait until it is done: helm status {release.name} -n {release.namespace}. After {_DEAD_SECONDS // 60} "
        "minutes install takes it for dead and mends it; if you know that it is, add --recover.",
    )


def _recover(plan: ReleasePlan) -> None:
    last = plan.history[-1]
    deployed = [release for release in plan.history if release.status == "deployed"]
    if last.status == "uninstalling":
        plan.helm.uninstall(plan.name, plan.namespace, timeout=_HELM_SECONDS)
    else:
        # To its own revision, where none was deployed: what is missing of it is made, and what is there stays.
        revision = deployed[-1].revision if deployed else last.revision
        plan.helm.rollback(plan.name, plan.namespace, revision, timeout=_HELM_SECONDS)


def _take_back_namespaces(plan: ReleasePlan, began: float) -> None:
    """Remove the namespaces that this attempt made, at `began` or later: Helm keeps them, with all in them."""
    from launcher.cluster import NAMESPACE

    for change in plan.changes:
        if (change.kind, change.action) == (NAMESPACE.kind, diff.CREATE):
            live = plan.cluster.get(NAMESPACE, change.name)
            if live is None or objects.annotation(live, "meta.helm.sh/release-name") != plan.name:
                continue
            if objects.parse_time(live["metadata"]["creationTimestamp"]).timestamp() >= int(began):  # whole seconds
                plan.cluster.delete(NAMESPACE, change.name, uid=objects.uid(live))


def _taken_back(plan: ReleasePlan, error: HelmError) -> LauncherError:
    """What is left after Helm failed, beside why it did."""
    sentences = error.sentences if isinstance(error, RulesBroken) else [error.message]
    if isinstance(error, RulesBroken):
        return LauncherError(
            "\n".join(release_values.with_origins(sentence, plan.user) for sentence in sentences), error.hint
        )
    try:
        now = plan.helm.history(plan.name, plan.namespace)
    except LauncherError:
        return LauncherError(f"{error.message} What became of the release {plan.name} cannot be told.", error.hint)
    if now == plan.history:
        left = "Nothing was changed."
    elif not now:
        left = "What had been made was removed again."
    elif now[-1].status == "deployed":
        left = f"The release {plan.name} is as it was before (revision {now[-1].revision})."
    else:
        left = f"The release {plan.name} is left {now[-1].status}; the same command tries again."
    return LauncherError(f"{error.message} {left}", error.hint)


def _no_release(name: str, cluster: Cluster, helm: Helm) -> LauncherError:
    ours = [release for release in helm.releases(cluster.namespace) if release.chart_name in (*CHARTS, "run")]
    names = [release.name for release in ours]
    near = nearest(name, names)
    guess = f' Did you mean "{near[0]}"?' if near else ""
    there = f"Slipway's releases there: {either(names, 'and')}." if names else "None there is Slipway's."
    return NoRelease(f'There is no release "{name}" in the {cluster.where}.{guess}', f"{there} -n looks elsewhere.")


def _made_by_slipway(found: Sequence[Object]) -> bool:
    return all(objects.label(obj, "app.kubernetes.io/part-of") == "slipway" for obj in found)


def _runs_in(cluster: Cluster, removed: Sequence[Object]) -> list[str]:
    """The runs, by "namespace/name", that wait or run in the queues among the objects."""
    from launcher.cluster import WORKLOAD

    queues = {objects.name(obj) for obj in removed if obj["kind"] == "ClusterQueue"}
    local = {(objects.namespace(obj), objects.name(obj)) for obj in removed if obj["kind"] == "LocalQueue"}
    if not queues and not local:
        return []
    found = []
    for workload in cluster.list(WORKLOAD, all_namespaces=True):
        admitted = (objects.status(workload).get("admission") or {}).get("clusterQueue")
        waits = (objects.namespace(workload), workload["spec"].get("queueName")) in local
        if (admitted in queues or waits) and not objects.is_true(workload, "Finished"):
            owners = workload["metadata"].get("ownerReferences") or [{}]
            found.append(f"{objects.namespace(workload)}/{owners[0].get('name') or objects.name(workload)}")
    return sorted(found)


def _seconds_since(text: str) -> float:
    """Seconds since a time as Helm prints it."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()
    except ValueError as error:
        raise LauncherError(f"Helm gives a time that cannot be read: {text!r}.") from error
