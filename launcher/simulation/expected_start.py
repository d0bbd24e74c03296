"""The expected start of one run, for commands about this run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from launcher.backends.kubernetes.run_object import RunObject
from launcher.diagnose import preflight
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.errors import ClusterError
from launcher.k8s.target import Target
from launcher.simulation import live
from launcher.simulation.cluster_state import ClusterState, read_cluster
from launcher.simulation.live import Expectation
from launcher.simulation.offline import Kueue

_NEW = "new"  # the uid of a run that does not exist yet


def of_waiting_run(name: str, target: Target) -> Expectation | None:
    """Return the expectation of a run that waits in its queue; None if the cluster may not be read for it."""
    return of_waiting_runs(target).get(name)


def of_waiting_runs(target: Target) -> dict[str, Expectation]:
    """Return the expectation of each run of the namespace that waits, by its name.

    Empty if the cluster may not be read for it.
    """
    state = _read(target)
    answers = [] if state is None else live.expectations(state).runs
    return {each.run.name: each for each in answers if not each.run.running}


def of_new_run(obj: Mapping[str, Any], target: Target) -> Expectation | None:
    """Return the expectation of a run that would be created now; None if the cluster may not be read for it."""
    state = _read(replace(target, namespace=objects.namespace(obj)))
    if state is None:
        return None
    priority = state.platform.priorities.get(objects.label(obj, label_keys.KUEUE_PRIORITY_CLASS), 0)
    created = state.now.isoformat(timespec="seconds").replace("+00:00", "Z")
    run = {**obj, "metadata": {**obj["metadata"], "uid": _NEW, "creationTimestamp": created}}
    workload = preflight.expected_workload(run, created=created, priority=priority, uid=_NEW)
    return _expectation(
        replace(
            state,
            workloads=[*state.workloads, workload],
            runs={**state.runs, _NEW: RunObject.parse(run)},
        ),
        objects.name(obj),
    )


def _read(target: Target) -> ClusterState | None:
    try:
        return read_cluster(target, Kueue())
    except (ClusterError, LauncherError):  # the command about the run reports what is wrong with the cluster
        return None


def _expectation(state: ClusterState, name: str) -> Expectation | None:
    answers = live.expectations(state).runs
    return next((each for each in answers if each.run.name == name and not each.run.running), None)
