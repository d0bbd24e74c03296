"""Read the runs of a cluster: their objects, Workloads and pods, and the status that follows from them.

A run is one RayJob or JobSet with the label slipway.dev/run. Objects without the label are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from launcher.backends.base import RunStatus
from launcher.backends.kubernetes import states
from launcher.backends.kubernetes.run_object import KINDS, RunObject
from launcher.backends.kubernetes.states import ObservedRun
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import POD, WORKLOAD, Cluster, Kind, KindNotServed
from launcher.k8s.objects import Manifest, Object


def find(cluster: Cluster, name: str) -> RunObject | None:
    """Return the RayJob or JobSet called `name`, or None. It may not be a run; see RunObject.is_run.

    Raises LauncherError if both a RayJob and a JobSet have the name.
    """
    found = [obj for obj in run_parallel([_getter(cluster, kind, name) for kind in KINDS.values()]) if obj is not None]
    if len(found) == 2:
        raise LauncherError(
            f'Both a RayJob and a JobSet "{name}" exist in the namespace {cluster.namespace}; a run has only one.',
            f"Delete one of them: kubectl delete jobset {name} -n {cluster.namespace}, or kubectl delete rayjob {name} "
            f"-n {cluster.namespace}",
        )
    return RunObject.parse(found[0]) if found else None


def observe(cluster: Cluster, run: RunObject) -> ObservedRun:
    """Return the run with its Workload and its pods."""
    workloads, pods = run_parallel(
        [
            lambda: (
                list_or_none(cluster, WORKLOAD, labels=f"{label_keys.KUEUE_JOB_UID}={run.uid}") if run.queue else []
            ),
            lambda: cluster.list(POD, labels=f"{label_keys.RUN}={run.name}"),
        ]
    )
    return ObservedRun(run, newest(workloads or ()), own_pods(run, pods), workloads is not None)


def own_pods[Pod: Object](run: RunObject, pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the pods of this attempt, out of the pods with the run's label.

    Pods of the previous attempt, whose object had the same name, may still be terminating.
    """
    return tuple(pod for pod in pods if str(pod["metadata"].get("creationTimestamp") or "") >= run.created)


def all_seen(cluster: Cluster, *, sweep: str = "", all_namespaces: bool = False) -> list[ObservedRun]:
    """Return every run of the namespace, or of all (`all_namespaces`), with its Workload but without pods.

    With `sweep`, return only the runs of that sweep.
    """
    labels = f"{label_keys.RUN},{label_keys.SWEEP}={sweep}" if sweep else label_keys.RUN
    of_runs = [_lister(cluster, kind, labels, all_namespaces) for kind in KINDS.values()]
    of_workloads = partial(list_or_none, cluster, WORKLOAD, all_namespaces=all_namespaces)
    if sweep:  # most names are not a sweep's, and a list of all Workloads is large
        runs = run_parallel(of_runs)
        workloads = of_workloads() if any(runs) else []
    else:
        *runs, workloads = run_parallel([*of_runs, of_workloads])
    by_owner = {objects.label(workload, label_keys.KUEUE_JOB_UID): workload for workload in workloads or ()}
    kueue = workloads is not None
    parsed = [RunObject.parse(obj) for found in runs for obj in found]
    return [ObservedRun(run, by_owner.get(run.uid), None, kueue) for run in parsed if run.is_run]


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
        attempt=run.attempt,
        folder=run.folder,
        team=run.team,
        queue=run.queue,
        priority=_priority(seen),
        accelerator=" ".join(filter(None, [str(slice_.get("accelerator") or ""), str(slice_.get("topology") or "")])),
        slices=slice_.get("count"),
        context=cluster.context,
        sweep=run.sweep,
        sweep_values=run.sweep_values,
    )


def list_if_served(cluster: Cluster, kind: Kind, *, labels: str = "", all_namespaces: bool = False) -> list[Manifest]:
    """Return the objects of a kind; [] if the cluster does not have the kind."""
    return list_or_none(cluster, kind, labels=labels, all_namespaces=all_namespaces) or []


def list_or_none(
    cluster: Cluster, kind: Kind, *, labels: str = "", all_namespaces: bool = False
) -> list[Manifest] | None:
    """Return the objects of a kind; None if the cluster does not have the kind."""
    try:
        return cluster.list(kind, labels=labels, all_namespaces=all_namespaces)
    except KindNotServed:
        return None


def run_parallel(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the results of several requests, made in parallel. Raises the first error."""

    with ThreadPoolExecutor(max_workers=len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def newest(those: Iterable[Object]) -> Object | None:
    """Return the object that was created last, or None."""
    return max(those, key=lambda one: str(one["metadata"].get("creationTimestamp")), default=None)


def _getter(cluster: Cluster, kind: Kind, name: str) -> Callable[[], Object | None]:
    def get() -> Object | None:
        try:
            return cluster.get(kind, name)
        except KindNotServed:
            return None

    return get


def _lister(cluster: Cluster, kind: Kind, labels: str, all_namespaces: bool) -> Callable[[], list[Manifest]]:
    return lambda: list_if_served(cluster, kind, labels=labels, all_namespaces=all_namespaces)


def _priority(seen: ObservedRun) -> str:
    if seen.run.priority_class or seen.workload is None:
        return seen.run.priority_class
    reference = seen.workload["spec"].get("priorityClassRef") or {}
    return str(reference.get("name") or "")
