"""Short forms of queues and jobs, for tests of the simulation of Kueue's scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from launcher.k8s.kueue.queues import ClusterQueue, Cohort
from launcher.products.planner.scheduler.model import Job, Outcome, PodSetRequest, Scenario
from launcher.products.planner.scheduler.simulation import simulate

CHIPS = "google.com/tpu"
Amount = int | tuple[int, int | None, int | None]  # nominal quota, borrowing limit, lending limit


def groups(quota: Mapping[str, Amount], resource: str = CHIPS) -> list[dict[str, Any]]:
    """Return a resource group with the given quota of each flavor."""
    flavors = []
    for name, amount in quota.items():
        nominal, borrowing, lending = amount if isinstance(amount, tuple) else (amount, None, None)
        entry: dict[str, Any] = {"name": resource, "nominalQuota": str(nominal)}
        if borrowing is not None:
            entry["borrowingLimit"] = str(borrowing)
        if lending is not None:
            entry["lendingLimit"] = str(lending)
        flavors.append({"name": name, "resources": [entry]})
    return [{"coveredResources": [resource], "flavors": flavors}]


def queue(name: str, quota: Mapping[str, Amount] | int, cohort: str = "", **spec: Any) -> ClusterQueue:
    """Return a ClusterQueue. Keys of its preemption can be given directly: within, reclaim, borrow."""
    named = {"within": "withinClusterQueue", "reclaim": "reclaimWithinCohort", "borrow": "borrowWithinCohort"}
    preemption = {named[key]: spec.pop(key) for key in list(spec) if key in named}
    quotas = quota if isinstance(quota, Mapping) else {"a": quota}
    spec = {"queueingStrategy": "BestEffortFIFO", "resourceGroups": groups(quotas), "preemption": preemption, **spec}
    if cohort:
        spec["cohortName"] = cohort
    return ClusterQueue({"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})


def cohort(name: str, parent: str = "", quota: Mapping[str, Amount] | None = None, weight: str = "") -> Cohort:
    spec: dict[str, Any] = {"parentName": parent} if parent else {}
    if quota:
        spec["resourceGroups"] = groups(quota)
    if weight:
        spec["fairSharing"] = {"weight": weight}
    return Cohort({"kind": "Cohort", "metadata": {"name": name}, "spec": spec})


def job(name: str, queue: str, chips: int, created: float, takes: float = 100.0, priority: int = 0, **more: Any) -> Job:
    flavors = more.pop("flavors", None)
    pod_set = PodSetRequest({CHIPS: Decimal(chips)}, frozenset(flavors) if flavors else None)
    return Job(name, queue, more.pop("pod_sets", (pod_set,)), priority, created, takes, **more)


def play(queues: Sequence[ClusterQueue], jobs: Sequence[Job], cohorts: Sequence[Cohort] = (), **more: Any) -> Outcome:
    return simulate(Scenario(queues, cohorts, jobs, **more))


def starts(outcome: Outcome) -> dict[str, int]:
    """Return the second in which each job gets quota first."""
    found: dict[str, int] = {}
    for event in outcome.events:
        if event.what == "admitted":
            found.setdefault(event.job, int(event.at))
    return found


def evictions(outcome: Outcome) -> list[tuple[int, str, str, str]]:
    """Return the second, the job, the reason and the preemptor of each eviction."""
    return [
        (int(event.at), event.job, event.eviction.reason, event.eviction.by)
        for event in outcome.events
        if event.eviction is not None
    ]


def flavors(outcome: Outcome, name: str) -> list[list[str]]:
    """Return the flavors of each attempt of a job."""
    return [
        [flavor for pod_set in attempt.flavors for flavor in pod_set.values()] for attempt in outcome.attempts[name]
    ]
