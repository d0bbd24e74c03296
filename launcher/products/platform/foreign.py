"""List, with the runs, the chips that no quota counts, and the objects in the queues that Slipway did not create.

A foreign object is one for which Kueue has a Workload, and which Slipway did not create: a RayJob, JobSet, Job or pod
of kubectl, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from launcher.backends.base import RunStatus, State
from launcher.backends.kubernetes.backend import KubernetesBackend, newest_first
from launcher.backends.kubernetes.reader import Listing, all_seen, run_parallel
from launcher.backends.kubernetes.run_object import KINDS, POD_SPECS
from launcher.backends.kubernetes.states import eviction
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import POD, RAY_CLUSTER, RAY_SERVICE, WORKLOAD, Cluster, ClusterError
from launcher.k8s.kueue import workloads as kueue_workloads
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import ApiObject, Manifest
from launcher.k8s.pods import Pod
from launcher.k8s.target import Target
from launcher.products.platform.uncounted import (
    FIELDS,
    UNUSED,
    Owner,
    Uncounted,
    needs_ray_clusters,
    owner_of,
    uncounted,
)

_LISTED_APART = ("RayCluster",)
"""Kinds that `launcher list` shows in a table of their own, also those of other clients."""


class QueueBackend(KubernetesBackend):
    """The runs of a namespace, and what else is in its queues; only `list` differs."""

    def list(self, warn: Callable[[str], None], *, sweep: str = "") -> Sequence[RunStatus]:
        if sweep:
            return super().list(warn, sweep=sweep)
        listing, pods = run_parallel(
            [partial(all_seen, self.cluster, all_namespaces=self.all_namespaces), self._pods_with_nodes]
        )
        statuses = self._statuses(listing)
        if listing.workloads:  # without Kueue, or in a namespace that does not use it, there is no quota
            statuses = self._complete(statuses, listing, self._uncounted(pods, listing.workloads, warn), warn)
        self._warn_without_namespace(statuses, warn)
        return newest_first(statuses)

    def _pods_with_nodes(self) -> Sequence[Pod] | ClusterError:
        """Return the pods that have nodes and have not ended; the error if they cannot be read."""
        try:
            listed = self.cluster.list(POD, fields=FIELDS, all_namespaces=self.all_namespaces, without=UNUSED)
        except ClusterError as error:  # the list of runs is still useful
            return error
        return [*map(Pod, listed)]

    def _uncounted(
        self, pods: Sequence[Pod] | ClusterError, workloads: Sequence[Workload], warn: Callable[[str], None]
    ) -> Sequence[Uncounted]:
        if isinstance(pods, ClusterError):
            warn(f"{pods.message} Chips that no quota counts are not shown.")
            return []
        clusters: Sequence[ApiObject] = []
        if needs_ray_clusters(pods, workloads):
            try:
                clusters = [*map(ApiObject, self.cluster.list(RAY_CLUSTER, all_namespaces=self.all_namespaces))]
            except ClusterError as error:
                warn(f"{error.message} The runs of their pods are not known.")
        return uncounted(pods, workloads, datetime.now(UTC), ray_clusters=clusters)

    def _complete(
        self,
        statuses: Sequence[RunStatus],
        listing: Listing,
        uncounted: Sequence[Uncounted],
        warn: Callable[[str], None],
    ) -> Sequence[RunStatus]:
        """Return the statuses of `listing.runs` with their uncounted chips, and those of foreign objects.

        Calls `warn` with a sentence for each object with uncounted chips, and for what cannot be read.
        """
        now = datetime.now(UTC)
        by_owner = {use.owner: use for use in uncounted}
        runs = [Owner(seen.run.namespace, seen.run.kind, seen.run.name, seen.run.uid) for seen in listing.runs]
        shown = [
            _with_uncounted(status, by_owner.get(owner), now) for status, owner in zip(statuses, runs, strict=True)
        ]
        for owner, workloads in self._foreign(listing, set(runs), by_owner, warn):
            shown.append(_with_uncounted(_status(self.cluster, owner, workloads), by_owner.get(owner), now))
        for use in uncounted:
            warn(f"{use.sentence(now)} {use.advice}")
        return shown

    def _foreign(
        self, listing: Listing, runs: set[Owner], by_owner: Mapping[Owner, Uncounted], warn: Callable[[str], None]
    ) -> Sequence[tuple[Owner, Sequence[Workload]]]:
        """Return the foreign objects that wait, have quota, or use uncounted chips, with their Workloads."""
        foreign: list[tuple[Owner, Sequence[Workload]]] = [
            (owner, workloads)
            for owner, workloads in _by_owner(listing.workloads or ())
            if owner not in runs
            and owner.kind not in _LISTED_APART
            and (owner in by_owner or not all(workload.is_true("Finished") for workload in workloads))
        ]
        listed = {*runs, *(owner for owner, _ in foreign)}
        foreign += [(owner, []) for owner in by_owner if owner not in listed and owner.kind not in _LISTED_APART]
        not_runs = {run.uid for run in listing.not_runs}
        for kind in {owner.kind for owner, _ in foreign} & _READERS.keys():
            try:
                uids = not_runs | {
                    objects.uid(obj) for obj in _READERS[kind](self.cluster, all_namespaces=self.all_namespaces)
                }
            except ClusterError as error:
                warn(f"{error.message} Those that Slipway did not create are not shown.")
                uids = set()
            foreign = [(owner, workloads) for owner, workloads in foreign if owner.kind != kind or owner.uid in uids]
        return foreign


def find(name: str, target: Target) -> tuple[Cluster, RunStatus, Workload] | None:
    """Return the cluster, the foreign object of the namespace with that name, and its Workload.

    Returns None if the namespace has no such object, or if the cluster does not answer: the caller then reports that
    the run does not exist.
    """
    if not target.cluster_requested:
        return None
    with suppress(LauncherError):
        cluster = target.cluster()
        if (found := _find(cluster, name)) is not None:
            return cluster, *found
    return None


def _find(cluster: Cluster, name: str) -> tuple[RunStatus, Workload] | None:
    listed = kueue_workloads.workloads(cluster.list(WORKLOAD, without=[kueue_workloads.TEMPLATES]))
    for owner, workloads in _by_owner(listed):
        newest = kueue_workloads.newest(workloads)
        if owner.name == name and newest is not None:
            read = _READERS.get(owner.kind)
            if read is None or any(objects.name(obj) == name for obj in read(cluster, all_namespaces=False)):
                return _status(cluster, owner, workloads), newest
    return None


def named(name: str, target: Target) -> tuple[str, str] | None:
    """Return a sentence about the foreign object with that name, and the commands for it; None if none is known."""
    found = find(name, target)
    if found is None or found[1].kind in _LISTED_APART:
        return None
    kind, space = found[1].kind, found[1].namespace
    at = f"{kind.lower()} {name} -n {space}"
    return (
        f'"{name}" is a {kind} in a queue of the namespace {space} that Slipway did not create.',
        f"To show it: kubectl get {at} -o yaml; to see why it waits: launcher explain {name} -n {space}; to "
        f"delete it: kubectl delete {at}",
    )


def _with_uncounted(status: RunStatus, use: Uncounted | None, now: datetime) -> RunStatus:
    if use is None:
        return status
    clause = use.clause(now)
    return replace(status, uncounted_chips=use.chips, uncounted_reason=f"{clause[:1].upper()}{clause[1:]}.")


def _foreign_objects(cluster: Cluster, run_kind: RunKind, *, all_namespaces: bool = False) -> list[Manifest]:
    """Return the objects of a kind without the label of runs, in the namespace or in all, without their pods' specs."""
    return cluster.list(
        KINDS[run_kind], labels=f"!{label_keys.RUN}", all_namespaces=all_namespaces, without=POD_SPECS[run_kind]
    )


def _foreign_services(cluster: Cluster, *, all_namespaces: bool) -> list[Manifest]:
    return cluster.list(RAY_SERVICE, labels=f"!{label_keys.MODEL}", all_namespaces=all_namespaces)


# Returns the foreign objects of the kinds that Slipway creates. A Workload alone does not show who created its object:
# a run may be newer than the list of runs, or was deleted and its Workload was not yet.
_READERS: Mapping[str, Callable[..., list[Manifest]]] = {
    **{kind.kind: partial(_foreign_objects, run_kind=run_kind) for run_kind, kind in KINDS.items()},
    RAY_SERVICE.kind: _foreign_services,
}


def _by_owner(workloads: Iterable[Workload]) -> list[tuple[Owner, list[Workload]]]:
    owned: dict[Owner, list[Workload]] = {}
    for workload in workloads:
        owned.setdefault(owner_of(workload), []).append(workload)
    return list(owned.items())


def _status(cluster: Cluster, owner: Owner, workloads: Sequence[Workload]) -> RunStatus:
    workload = kueue_workloads.newest(workloads)
    state, reason = (State.RUNNING, "") if workload is None else classify(workload)
    return RunStatus(
        name=owner.name,
        namespace=owner.namespace,
        kind=owner.kind,
        state=state,
        reason=reason,
        submitted=(workload.created or None) if workload is not None else None,
        ended=(workload.condition("Finished").since or None) if workload is not None and state.ended else None,
        preemptions=0 if workload is None else workload.preemptions,
        queue="" if workload is None else workload.local_queue,
        priority="" if workload is None else workload.priority_class,
        context=cluster.context,
        foreign=True,
    )


def classify(workload: Workload) -> tuple[State, str]:
    """Return the state of a foreign object from its Workload, and the reason that Kueue reports, or ""."""
    finished, evicted = workload.condition("Finished"), workload.evicted
    if finished.is_true:
        if finished.reason == "Succeeded":
            return State.SUCCEEDED, ""
        return State.FAILED, finished.message.split(", last available logs")[0].partition("\n")[0]
    if evicted.is_true:
        return (State.PREEMPTED if evicted.reason == "Preempted" else State.QUEUED), eviction(evicted)
    if not workload.active:
        return State.CANCELLED, "Its Workload was deactivated."
    if workload.is_true("Admitted"):
        return (State.RUNNING, "") if workload.is_true("PodsReady") else (State.ADMITTED, "")
    if workload.has_quota:
        return State.QUEUED, "Its quota is reserved; it waits for the admission checks of its queue."
    return State.QUEUED, workload.reserved.message or "Kueue has not processed it yet."
