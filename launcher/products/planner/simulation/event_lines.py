"""An outcome as a line of JSON, in the form of the recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.products.planner.scheduler.model import Event, Eviction, Flavors, Outcome, Scenario

_SHOWN = ("admitted", "evicted", "finished")
# Kueue's reasons of a preemption, and its text for each (pkg/scheduler/preemption, HumanReadablePreemptionReasons).
_PREEMPTED = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}


def as_line(scenario_id: str, scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    """Return the admissions, evictions and ends of an outcome, and the runs that do not end."""
    paths = _paths(scenario)
    queues = {job.name: job.queue for job in scenario.jobs}

    def detail(event: Event) -> Any:
        if event.what == "admitted":
            return flavor_list(event.flavors)
        if event.what == "evicted":
            return _eviction(event, event.eviction or Eviction("Evicted"), queues, paths)
        return None

    return {
        "id": scenario_id,
        "events": [
            [round(event.at, 3), event.job, event.what, detail(event)]
            for event in outcome.events
            if event.what in _SHOWN
        ],
        "never": sorted(outcome.never),
    }


def flavor_list(flavors: Flavors) -> list[str]:
    """Return the flavor of each pod set; several flavors of one pod set are separated by commas."""
    return [",".join(dict.fromkeys(each.values())) for each in flavors]


def _eviction(event: Event, why: Eviction, queues: Mapping[str, str], paths: Mapping[str, str]) -> dict[str, str]:
    reason, by = why.reason, why.by
    if reason not in _PREEMPTED:
        return {"reason": reason, "message": f"Evicted: {reason}"}
    message = f"Preempted to accommodate {by or 'a workload'} due to {_PREEMPTED[reason]}"
    if by:
        message += f"; preemptor path: {paths[queues[by]]}; preemptee path: {paths[queues[event.job]]}"
    return {"reason": "Preempted", "preempted": reason, "message": message}


def _paths(scenario: Scenario) -> dict[str, str]:
    """Return the path of each ClusterQueue from its root cohort: "/company/department/queue"."""
    parents = {cohort.name: cohort.parent for cohort in scenario.cohorts}
    paths: dict[str, str] = {}
    for queue in scenario.cluster_queues:
        names: list[str] = [queue.name]
        above = queue.cohort
        while above and above not in names:
            names.append(above)
            above = parents.get(above, "")
        paths[queue.name] = "".join(f"/{name}" for name in reversed(names))
    return paths
