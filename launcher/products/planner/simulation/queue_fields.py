"""The fields of a ClusterQueue or a Cohort that follow from its entry in the queues' values.

As in charts/queues/templates (cluster-queues.yaml, cohorts.yaml, _quota.tpl), which a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING
from typing import Any

from launcher.k8s.objects import quantity

CLUSTER_QUEUES, COHORTS = "clusterQueues", "cohorts"

_HOST = ("cpu", "memory")
_AMOUNT = re.compile(r"(?P<number>[0-9]*)(?P<unit>[A-Za-z]*)")

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FlavorValues:
    """A flavor of the values: the name of its ResourceFlavor, and the resource of its chips, "" without chips.

    A slice has `chips` on `hosts`. `host` has the cpu and memory of a host if their quota follows from the slices.
    """

    object: str
    resource: str
    chips: int
    hosts: int
    host: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Tables:
    """The values that an entry refers to: flavors, and the numbers of the priorities, by name."""

    flavors: Mapping[str, FlavorValues]
    priorities: Mapping[str, int]


def _cohort(entry: Entry, tables: Tables) -> str | None:
    return entry.get("cohort") or None


def _parent(entry: Entry, tables: Tables) -> str | None:
    return entry.get("parent") or None


def _strategy(entry: Entry, tables: Tables) -> str:
    return entry.get("queueingStrategy") or "BestEffortFIFO"


def _stop_policy(entry: Entry, tables: Tables) -> str | None:
    policy = entry.get("stopPolicy") or "None"
    return None if policy == "None" else policy


def _fair_sharing(entry: Entry, tables: Tables) -> dict[str, str] | None:
    if "fairWeight" not in entry:
        return None
    # The chart rounds all amounts up to thousandths.
    thousandths = (quantity(entry["fairWeight"]) * 1000).to_integral_value(ROUND_CEILING)
    return {"weight": f"{thousandths / 1000:f}"}


def _preemption(entry: Entry, tables: Tables) -> dict[str, Any] | None:
    given = entry.get("preemption") or {}
    made: dict[str, Any] = {field: given[field] for field in _POLICIES if given.get(field)}
    if borrow := given.get("borrowWithinCohort"):
        made["borrowWithinCohort"] = {"policy": borrow}
        if threshold := given.get("maxPriorityThreshold"):
            made["borrowWithinCohort"]["maxPriorityThreshold"] = tables.priorities.get(threshold, 0)
    return made or None


_POLICIES = ("withinClusterQueue", "reclaimWithinCohort")


def _fungibility(entry: Entry, tables: Tables) -> dict[str, Any] | None:
    return {field: policy for field, policy in (entry.get("flavorFungibility") or {}).items() if policy} or None


def _resource_groups(entry: Entry, tables: Tables) -> list[dict[str, Any]] | None:
    """Return a group for each resource of chips, and one for cpu and memory; or one group, if hosts have both."""
    quota = entry.get("quota") or {}
    names = sorted(quota, key=lambda name: (quota[name].get("order") or 0, name))
    kinds = {name: tables.flavors[name] for name in names}
    chips = [name for name in names if kinds[name].resource]
    resources = sorted({kinds[name].resource for name in chips})
    groups: list[tuple[Sequence[str], Sequence[str]]]
    if any(kinds[name].host for name in chips):
        groups = [([*resources, *_HOST], names)]
    else:
        groups = [([resource], [name for name in chips if kinds[name].resource == resource]) for resource in resources]
        if cpu := [name for name in names if not kinds[name].resource]:
            groups.append((_HOST, cpu))
    return [
        {
            "coveredResources": list(covered),
            "flavors": [
                {
                    "name": kinds[name].object,
                    "resources": [_resource_quota(resource, quota[name], kinds[name]) for resource in covered],
                }
                for name in group
            ],
        }
        for covered, group in groups
    ] or None


def _resource_quota(resource: str, quota: Entry, kind: FlavorValues) -> dict[str, str]:
    """Return the quota of one flavor for one resource. A limit that is not set is unlimited."""
    made = {"name": resource, "nominalQuota": "0"}
    of_host = resource in _HOST and not kind.resource
    prefix = resource if of_host else ""
    for field, key in (
        ("nominalQuota", prefix or "slices"),
        ("borrowingLimit", f"{prefix}Borrowing" if prefix else "borrowing"),
        ("lendingLimit", f"{prefix}Lending" if prefix else "lending"),
    ):
        if key not in quota:
            continue
        if of_host:
            made[field] = str(quota[key])
        elif resource == kind.resource:
            made[field] = str(quota[key] * kind.chips)
        elif resource in kind.host and (amount := _AMOUNT.fullmatch(kind.host[resource])):
            made[field] = f"{quota[key] * kind.hosts * int(amount['number'])}{amount['unit']}"
    return made


Field = Callable[[Entry, Tables], Any]
"""Returns the value of a field; None if the object does not have the field."""

FIELDS: Mapping[str, Mapping[str, tuple[str, Field]]] = {
    CLUSTER_QUEUES: {
        "cohort": ("cohortName", _cohort),
        "queueingStrategy": ("queueingStrategy", _strategy),
        "stopPolicy": ("stopPolicy", _stop_policy),
        "fairWeight": ("fairSharing", _fair_sharing),
        "preemption": ("preemption", _preemption),
        "flavorFungibility": ("flavorFungibility", _fungibility),
        "quota": ("resourceGroups", _resource_groups),
    },
    COHORTS: {
        "parent": ("parentName", _parent),
        "fairWeight": ("fairSharing", _fair_sharing),
        "quota": ("resourceGroups", _resource_groups),
    },
}
"""By kind and key of its entry: the field of the spec, and its value."""
