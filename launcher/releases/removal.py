"""Uninstall releases. Only releases of Slipway's charts that no run uses are removed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from launcher import hooks
from launcher.config.suggest import closest, join_or
from launcher.errors import LauncherError
from launcher.helm import diff
from launcher.helm.client import Helm, Release
from launcher.helm.errors import NoRelease
from launcher.k8s import label_keys, objects
from launcher.k8s.objects import Manifest
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.paths import CHARTS
from launcher.releases import users
from launcher.releases.install import alive, busy, helm_for

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster

Say = Callable[[str], None]

# How runs use a release, and what happens to them if it is removed.
_MEANS = {
    "queues": ("use the queues of", "these runs then lose their queue, and those that wait never start"),
    "ray-cluster": ("are active in the Ray cluster of", "these runs then end with the Ray cluster"),
}


@dataclass(frozen=True)
class Removal:
    """The objects that uninstalling a release removes and keeps (namespaces with their contents), and its users.

    `needed_by` lists the runs that use the release. `unseen` has a sentence for each object whose users could not be
    determined.
    """

    release: Release
    cluster: Cluster = field(repr=False)
    helm: Helm = field(repr=False)
    removed: list[Manifest]
    kept: list[Manifest]
    needed_by: list[str]
    unseen: list[str] = field(default_factory=list)

    def as_json(self) -> Manifest:
        return {
            "release": self.release.name,
            "chart": self.release.chart_name,
            "namespace": self.release.namespace,
            "context": self.cluster.context,
            "removed": [objects.title(obj) for obj in self.removed],
            "kept": [objects.title(obj) for obj in self.kept],
            "neededBy": self.needed_by,
            "unseen": self.unseen,
        }


def plan_removal(name: str, *, target: Target = DEFAULT_TARGET) -> Removal:
    """Return what `uninstall` of a release would remove, and the runs that need it. Changes nothing.

    Raises LauncherError if the release does not exist, is busy, or is not of a chart of Slipway's.
    """
    cluster = target.cluster()
    helm = helm_for(cluster)
    _ = cluster.version()
    history = helm.history(name, cluster.namespace)
    if not history:
        raise _no_release(name, cluster, helm)
    release = history[-1]
    if release.status != "uninstalling" and alive(release):
        raise busy(release)
    manifests = helm.objects(release)
    of_slipway = all(objects.label(obj, label_keys.PART_OF) == "slipway" for obj in manifests)
    if release.chart_name not in (*CHARTS, "run") or not of_slipway:
        raise LauncherError(
            f"The release {name} in the namespace {release.namespace} was installed from the chart {release.chart}, "
            "which is not a chart of Slipway; nothing was changed.",
            f"helm uninstall {name} -n {release.namespace} removes it.",
        )
    kept = [obj for obj in manifests if diff.is_kept(obj)]
    removed = [obj for obj in manifests if not diff.is_kept(obj) and diff.live_object(cluster, obj) is not None]
    in_clusters, unseen = hooks.active_jobs(cluster, removed)
    needed_by = users.in_queues(cluster, removed) + in_clusters
    unseen += sorted(cluster.unreadable)  # they may need it
    return Removal(release, cluster, helm, removed, kept, needed_by, unseen)


def uninstall(removal: Removal, say: Say = lambda _: None, *, force: bool = False, seconds: float = 60) -> list[str]:
    """Remove the release and wait until its objects are deleted; return what still exists after `seconds`.

    Raises LauncherError if runs use the release, unless `force` is set.
    """
    release = removal.release
    if removal.needed_by and not force:
        shown = removal.needed_by[:5] + [f"{len(removal.needed_by) - 5} more"] * (len(removal.needed_by) > 5)
        where, then = _MEANS.get(release.chart_name, _MEANS["queues"])
        raise LauncherError(
            f"Runs {where} {release.name}: {join_or(shown, 'and')}; nothing was changed.",
            f"Cancel them first, or add --force: {then}.",
        )
    removal.helm.uninstall(release.name, release.namespace)
    deadline, reported = time.monotonic() + seconds, False
    while left := [obj for obj in removal.removed if diff.live_object(removal.cluster, obj)]:
        if time.monotonic() >= deadline:
            break
        if not reported:
            say(f"Waiting: {objects.title(left[0])} is being deleted …")
            reported = True
        time.sleep(0.5)
    return [f"{objects.title(obj)} is being deleted, and remains until nothing uses it any more." for obj in left]


def _no_release(name: str, cluster: Cluster, helm: Helm) -> LauncherError:
    ours = [release for release in helm.releases(cluster.namespace) if release.chart_name in (*CHARTS, "run")]
    names = [release.name for release in ours]
    near = closest(name, names)
    guess = f' Did you mean "{near[0]}"?' if near else ""
    there = f"Slipway's releases there: {join_or(names, 'and')}." if names else "There is no Slipway release there."
    return NoRelease(
        f'There is no release "{name}" in the {cluster.description}.{guess}', f"{there} Use -n for another namespace."
    )
