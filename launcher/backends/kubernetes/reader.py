"""Read the runs of a cluster: their objects, Workloads and pods, and the status that follows from them.

A run is one RayJob or JobSet with the label slipway.dev/run. Objects without the label are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from launcher.backends.base import RunStatus
from launcher.backends.kubernetes import states
from launcher.backends.kubernetes.states import ObservedRun
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError
from launcher.json_object import json_object
from launcher.k8s import label_keys, objects
from launcher.k8s.client import JOB_SET, POD, RAY_JOB, WORKLOAD, Cluster, Kind, KindNotServed
from launcher.k8s.objects import Manifest, Object

KINDS: Mapping[str, Kind] = {RunKind.RAY_JOB: RAY_JOB, RunKind.JOB_SET: JOB_SET}
_NAMES = {kind.kind: name for name, kind in KINDS.items()}


def find(cluster: Cluster, name: str) -> Object | None:
    """Return the RayJob or JobSet called `name`, or None. It may not be a run; see `ours`.

    Raises LauncherError if both a RayJob and a JobSet have the name.
    """
    found = [obj for obj in run_parallel([_getter(cluster, kind, name) for kind in KINDS.values()]) if obj is not None]
    if len(found) == 2:
        raise LauncherError(
            f'Both a RayJob and a JobSet "{name}" exist in the namespace {cluster.namespace}; a run has only one.',
            f"Delete one of them: kubectl delete jobset {name} -n {cluster.namespace}, or kubectl delete rayjob {name} "
            f"-n {cluster.namespace}",
        )
    return found[0] if found else None


def ours(obj: Object) -> bool:
    """Return whether the object is a run, and not an unrelated RayJob or JobSet."""
    return objects.label(obj, label_keys.RUN) == objects.name(obj)


def kind_of(obj: Object) -> Kind:
    return KINDS[_NAMES[obj["kind"]]]


def observe(cluster: Cluster, obj: Object) -> ObservedRun:
    """Return the object with its Workload and its pods."""
    name, uid = objects.name(obj), objects.uid(obj)
    workloads, pods = run_parallel(
        [
            lambda: list_or_none(cluster, WORKLOAD, labels=f"{label_keys.KUEUE_JOB_UID}={uid}") if _queued(obj) else [],
            lambda: cluster.list(POD, labels=f"{label_keys.RUN}={name}"),
        ]
    )
    return ObservedRun(obj, newest(workloads or ()), own_pods(obj, pods), workloads is not None)


def own_pods[Pod: Object](obj: Object, pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the pods of this attempt, out of the pods with the run's label.

    Pods of the previous attempt, whose object had the same name, may still be terminating.
    """
    since = str(obj["metadata"].get("creationTimestamp") or "")
    return tuple(pod for pod in pods if str(pod["metadata"].get("creationTimestamp") or "") >= since)


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
    return [
        ObservedRun(obj, by_owner.get(objects.uid(obj)), None, kueue) for found in runs for obj in found if ours(obj)
    ]


def status(cluster: Cluster, seen: ObservedRun) -> RunStatus:
    """Return the status from the object, Workload and pods, without the values of the log (steps, losses)."""
    state, reason = states.classify(seen)
    config = config_of(seen.obj)
    slice_, train = config.get("slice") or {}, config.get("train") or {}
    command = (config.get("run") or {}).get("command")
    steps = None if command else train.get("steps")
    return RunStatus(
        name=objects.name(seen.obj),
        namespace=objects.namespace(seen.obj),
        kind=_NAMES[seen.obj["kind"]],
        state=state,
        reason=reason,
        steps=steps if isinstance(steps, int) and steps > 0 else None,
        submitted=str(seen.obj["metadata"].get("creationTimestamp") or "") or None,
        started=states.started(seen),
        ended=states.ended(seen) if state.ended else None,
        restarts=states.restarts(seen),
        attempt=attempt_of(seen.obj),
        folder=folder_of(config),
        team=objects.label(seen.obj, label_keys.TEAM),
        queue=objects.label(seen.obj, label_keys.KUEUE_QUEUE),
        priority=_priority(seen),
        accelerator=" ".join(filter(None, [str(slice_.get("accelerator") or ""), str(slice_.get("topology") or "")])),
        slices=slice_.get("count"),
        context=cluster.context,
        sweep=objects.label(seen.obj, label_keys.SWEEP),
        sweep_values=read_values(objects.annotation(seen.obj, label_keys.SWEEP_VALUES)),
    )


def attempt_of(obj: Object) -> int:
    text = objects.annotation(obj, label_keys.ATTEMPT)
    return int(text) if text.isdigit() else 1


def config_of(obj: Object) -> dict[str, Any]:
    """Return the run config stored in the object; {} if it is missing or cannot be read."""
    spec = obj["spec"]
    if obj["kind"] == "RayJob":
        template = ((spec.get("rayClusterSpec") or {}).get("headGroupSpec") or {}).get("template") or {}
    else:
        jobs = spec.get("replicatedJobs") or [{}]
        template = ((((jobs[0].get("template") or {}).get("spec")) or {}).get("template")) or {}
    text = ((template.get("metadata") or {}).get("annotations") or {}).get(label_keys.RUN_CONFIG)
    return json_object(text or "") or {}


def read_values(text: str) -> dict[str, Any]:
    """Return the values that a sweep set for a run, from the text stored in the run; {} if the text is invalid."""
    return json_object(text) or {}


def folder_of(config: Mapping[str, Any]) -> str:
    """Return the run's folder: the URL of a bucket or of a claim, else a path in the pods."""
    storage, name = config.get("storage") or {}, (config.get("run") or {}).get("name") or ""
    if not storage or not name:
        return ""
    if storage.get("kind") == "gcsfuse":
        return f"gs://{storage.get('bucket')}/{name}"
    if storage.get("kind") == "pvc":
        return f"pvc://{storage.get('claim')}/{name}"
    return f"{str(storage.get('mountPath') or '').rstrip('/')}/{name}"


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


def _queued(obj: Object) -> bool:
    return bool(objects.label(obj, label_keys.KUEUE_QUEUE))


def _priority(seen: ObservedRun) -> str:
    named = objects.label(seen.obj, label_keys.KUEUE_PRIORITY_CLASS)
    if named or seen.workload is None:
        return named
    reference = seen.workload["spec"].get("priorityClassRef") or {}
    return str(reference.get("name") or "")
