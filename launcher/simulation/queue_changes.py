"""Change the objects of queues as a change of their values would, without rendering the chart.

A search tries hundreds of changes, and Helm takes half a second for each. Only keys with a direct counterpart in a
ClusterQueue are known here; tests compare the result with that of the chart.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from launcher.k8s.kueue.queues import ClusterQueue
from launcher.k8s.objects import Manifest
from launcher.simulation.platform import Platform

_QUOTA = {"slices": "nominalQuota", "borrowing": "borrowingLimit", "lending": "lendingLimit"}
_PREEMPTION = ("withinClusterQueue", "reclaimWithinCohort")
_FUNGIBILITY = ("whenCanBorrow", "whenCanPreempt")


def changed_platform(platform: Platform, changes: Mapping[tuple[str, ...], Any]) -> Platform | None:
    """Return the platform with these keys of the queues' values changed; None if only the chart can render one."""
    queues: dict[str, Manifest] = {queue.name: copy.deepcopy(dict(queue.raw)) for queue in platform.cluster_queues}
    for path, value in changes.items():
        if path[0] != "clusterQueues" or len(path) < 3 or path[1] not in queues:
            return None
        if not _change(queues[path[1]]["spec"], path[2:], value, platform):
            return None
    return replace(platform, cluster_queues=[ClusterQueue(queues[queue.name]) for queue in platform.cluster_queues])


def _change(spec: dict[str, Any], path: tuple[str, ...], value: Any, platform: Platform) -> bool:
    """Change the spec of a ClusterQueue. Return False if the key is not known here."""
    match path:
        case ("queueingStrategy",) if isinstance(value, str):
            spec["queueingStrategy"] = value
        case ("preemption", name) if name in _PREEMPTION and value:
            spec.setdefault("preemption", {})[name] = value
        case ("flavorFungibility", name) if name in _FUNGIBILITY and value:
            spec.setdefault("flavorFungibility", {})[name] = value
        case ("quota", flavor, name) if name in _QUOTA and isinstance(value, int) and not isinstance(value, bool):
            return _change_quota(spec, flavor, _QUOTA[name], value, platform)
        case _:
            return False
    return True


def _change_quota(spec: dict[str, Any], flavor: str, field: str, slices: int, platform: Platform) -> bool:
    known = platform.flavors.get(flavor)
    found = [
        entry
        for group in spec.get("resourceGroups") or ()
        for each in group.get("flavors") or ()
        if each.get("name") == flavor
        for entry in each.get("resources") or ()
    ]
    # A flavor that also has the quota of cpu and memory: they follow from the slices, too.
    if known is None or not known.chips or [entry.get("name") for entry in found] != [known.resource]:
        return False
    found[0][field] = str(slices * known.chips)
    return True
