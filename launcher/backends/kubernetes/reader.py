"""Read the runs of a cluster: their objects, Workloads and pods, and the status that follows from them.

A run is one RayJob or JobSet with the label slipway.dev/run. Objects without the label are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from launcher.backends.base import RunStatus
from launcher.backends.kubernetes import states
from launcher.backends.kubernetes.run_object import KINDS, POD_SPECS, RunObject
from launcher.backends.kubernetes.states import ObservedRun
from launcher.config.kinds import RunKind
from launcher.config.provisioning import provisioning
from launcher.errors import LauncherError
from launcher.k8s import label_keys
from launcher.k8s.client import POD, WORKLOAD, Cluster, Kind, KindNotServed
from launcher.k8s.kueue import workloads as kueue_workloads
from launcher.k8s.kueue.workloads import TEMPLATES, Workload
from launcher.k8s.objects import Manifest, Object
from launcher.k8s.pods import Pod


def find(cluster: Cluster, name: str) -> RunObject | None:
    """Return the RayJob or JobSet called `name`, or None. It may not be a run; see RunObject.is_run.

    Raises LauncherError if both a RayJob and a JobSet have the name.
    """
    runs = [obj for obj in run_parallel([_getter(cluster, kind, name) for kind in KINDS.values()]) if obj is not None]
    if len(runs) == 2:
        raise LauncherError(
            f'Both a RayJob and a JobSet "{name}" exist in the namespace {cluster.namespace}; a run has only one.',
            f"Delete one of them: kubectl delete jobset {name} -n {cluster.namespace}, or kubectl delete rayjob {name} "
            f"-n {cluster.namespace}",
        )
    return RunObject.parse(runs[0]) if runs else None


def used_names(cluster: Cluster) -> set[str]:
    """Return the names of all RayJobs and JobSets of the namespace, whether they are runs or not."""

    def of_kind(kind: Kind) -> set[str]:
        try:
            return cluster.names(kind)
        except KindNotServed:
            return set()

    return set().union(*run_parallel([partial(of_kind, kind) for kind in KINDS.values()]))


def observe(cluster: Cluster, run: RunObject) -> ObservedRun:
    """Return the run with its Workload and its pods."""
    workloads, pods = run_parallel(
        [
            lambda: _workloads(cluster, labels=f"{label_keys.KUEUE_JOB_UID}={run.uid}") if run.queue else [],
            lambda: cluster.list(POD, labels=f"{label_keys.RUN}={run.name}"),
        ]
    )
    pods = own_pods(run, map(Pod, pods))
    return ObservedRun(run, kueue_workloads.newest(workloads or ()), pods, workloads is not None)


def own_pods(run: RunObject, pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the pods of this attempt, out of the pods with the run's label.

    Pods of the previous attempt, whose object had the same name, may still be terminating.
    """
    return tuple(pod for pod in pods if pod.created >= run.created)


@dataclass(frozen=True)
class Listing:
    """Runs with their Workloads but without pods, and all Workloads of the same namespaces; None without Kueue.

    `not_runs` are objects with the label of runs that are not runs: RunObject.is_run is False.
    """

    runs: Sequence[ObservedRun]
    workloads: Sequence[Workload] | None
    not_runs: Sequence[RunObject] = ()


def all_seen(cluster: Cluster, *, sweep: str = "", all_namespaces: bool = False) -> Listing:
    """Return every run of the namespace, or of all (`all_namespaces`). With `sweep`, only the runs of that sweep."""
    of_runs = _listers(
        cluster, f"{label_keys.RUN},{label_keys.SWEEP}={sweep}" if sweep else label_keys.RUN, all_namespaces
    )
    of_workloads = partial(_workloads, cluster, all_namespaces=all_namespaces)
    if sweep:  # most names are not a sweep's, and a list of all Workloads is large
        runs = run_parallel(of_runs)
        workloads = of_workloads() if any(runs) else []
    else:
        *runs, workloads = run_parallel([*of_runs, of_workloads])
    by_owner = {workload.label(label_keys.KUEUE_JOB_UID): workload for workload in workloads or ()}
    kueue = workloads is not None
    parsed = [RunObject.parse(obj) for found in runs for obj in found]
    observed = [ObservedRun(run, by_owner.get(run.uid), None, kueue) for run in parsed if run.is_run]
    return Listing(observed, workloads, [run for run in parsed if not run.is_run])


def run_objects(cluster: Cluster, *, all_namespaces: bool = False) -> list[RunObject]:
    """Return every run of the namespace, or of all (`all_namespaces`), without Workloads and pods."""
    lists = run_parallel(_listers(cluster, label_keys.RUN, all_namespaces))
    return [run for run in (RunObject.parse(obj) for listed in lists for obj in listed) if run.is_run]


def status(cluster: Cluster, seen: ObservedRun) -> RunStatus:
    """Return the status from the object, Workload and pods, without the values of the log (steps, losses)."""
    state, reason = states.classify(seen)
    run, config = seen.run, seen.run.config
    slice_, train = config.get("slice") or {}, config.get("train") or {}
    command = (config.get("run") or {}).get("command")
    steps = None if command else train.get("steps")
    return RunStatus(
        name=run.name,
        namespace=run.namespace,
        kind=run.run_kind,
        state=state,
        reason=reason,
        steps=steps if isinstance(steps, int) and steps > 0 else None,
        submitted=run.created or None,
        started=states.started(seen),
        ended=states.ended(seen) if state.ended else None,
        restarts=states.restarts(seen),
        preemptions=states.preemptions(seen),
        attempt=run.attempt,
        folder=run.folder,
        team=run.team,
        queue=run.queue,
        priority=run.priority_class or ("" if seen.workload is None else seen.workload.priority_class),
        accelerator=" ".join(filter(None, [str(slice_.get("accelerator") or ""), str(slice_.get("topology") or "")])),
        slices=slice_.get("count"),
        provisioning=provisioning(slice_, seen.workload.flavor if seen.workload else ""),
        context=cluster.context,
        sweep=run.sweep,
        sweep_values=run.sweep_values,
    )


def _workloads(cluster: Cluster, *, labels: str = "", all_namespaces: bool = False) -> list[Workload] | None:
    """Return Workloads without the templates of their pods; None if the cluster does not have the kind."""
    try:
        listed = cluster.list(WORKLOAD, labels=labels, all_namespaces=all_namespaces, without=[TEMPLATES])
    except KindNotServed:
        return None
    return kueue_workloads.workloads(listed)


def run_parallel(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the results of several requests, made in parallel. Raises the first error."""

    with ThreadPoolExecutor(max_workers=len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def _getter(cluster: Cluster, kind: Kind, name: str) -> Callable[[], Object | None]:
    def get() -> Object | None:
        try:
            return cluster.get(kind, name)
        except KindNotServed:
            return None

    return get


def _listers(cluster: Cluster, labels: str, all_namespaces: bool) -> list[Callable[[], list[Manifest]]]:
    """Return the requests for the runs with these labels, one for each kind."""

    def read(run_kind: RunKind) -> list[Manifest]:
        try:
            return cluster.list(
                KINDS[run_kind], labels=labels, all_namespaces=all_namespaces, without=POD_SPECS[run_kind]
            )
        except KindNotServed:
            return []

    return [partial(read, run_kind) for run_kind in KINDS]
