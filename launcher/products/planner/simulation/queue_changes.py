"""Change the objects of queues as a change of their values would, without rendering the chart.

A search tries hundreds of changes, and Helm takes half a second for each. A changed key sets only the field of the
object that follows from it; the rest of the object is what the chart rendered.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from launcher.config.suggest import closest, join_or
from launcher.config.values.tree import KeyPath, dotted
from launcher.errors import UsageError
from launcher.k8s.kueue.queues import ClusterQueue, Cohort, QuotaOwner
from launcher.k8s.objects import Manifest, quantity
from launcher.products.planner.simulation import from_values, specs
from launcher.products.planner.simulation.platform import Platform, SliceFlavor, Team, with_slices
from launcher.products.planner.simulation.queue_fields import CLUSTER_QUEUES, COHORTS, FIELDS, FlavorValues, Tables

WITHIN = "--within"
"""The option that names the keys to change."""

Choice = Mapping[KeyPath, Any]
"""Keys of the queues' values, and a new value for each."""

_TEAMS, _PRIORITIES = "teams", "priorities"
KEYS: Mapping[str, Sequence[str]] = {
    CLUSTER_QUEUES: [*FIELDS[CLUSTER_QUEUES]],
    COHORTS: [*FIELDS[COHORTS]],
    _TEAMS: ["clusterQueue"],
    _PRIORITIES: ["value"],
}
"""The keys of an entry that can be changed, by kind."""

_DEPTHS = {"quota": 5, "preemption": 4, "flavorFungibility": 4}  # of the others: 3
_QUANTITIES = ("nominalQuota", "borrowingLimit", "lendingLimit", "weight")


class QueueChanges:
    """Changes of queues, made on the objects of `platform`, which the chart rendered from the values `effective`."""

    def __init__(self, platform: Platform, effective: Mapping[str, Any]) -> None:
        self._platform = platform
        self._values = {kind: effective.get(kind) or {} for kind in KEYS}
        self._slices = from_values.slices(effective)
        flavors = effective["flavors"]
        self._flavors = {
            name: FlavorValues(
                object=_object_of(name, bool(flavors[name].get("versioned")), platform),
                resource=each.resource,
                chips=each.chips,
                hosts=each.hosts,
                host={
                    resource: flavors[name][key]
                    for resource, key in (("cpu", "hostCpu"), ("memory", "hostMemory"))
                    if flavors[name].get(key)
                },
            )
            for name, each in self._slices.items()
        }

    def check(self, path: KeyPath, values: Iterable[Any]) -> None:
        """Raise UsageError if a simulation cannot vary the key, or if the key or a value names what does not exist.

        The chart's schema has accepted the key and the values: no value is a map, so the key is one of an entry.
        """
        key = dotted(path)
        if path[0] not in KEYS:
            raise _fail(key, f"a simulation cannot vary {path[0]}", path[0], KEYS, "It can vary keys of")
        if path[1] not in self._entries(path[0]):
            raise _fail(key, f"there is no {dotted(path[:2])}", path[1], self._entries(path[0]), f"{path[0]} has")
        if path[2] not in KEYS[path[0]] or len(path) != _DEPTHS.get(path[2], 3):
            raise _fail(
                key, "a simulation cannot vary this key", "", KEYS[path[0]], f"In an entry of {path[0]}, it can vary"
            )
        if path[2] == "quota" and path[3] not in self._flavors:
            raise _fail(key, f'there is no flavor "{path[3]}"', path[3], self._flavors, "The flavors are")
        kind = {
            "cohort": COHORTS,
            "parent": COHORTS,
            "clusterQueue": CLUSTER_QUEUES,
            "maxPriorityThreshold": _PRIORITIES,
        }
        if named := kind.get(path[-1]):
            for value in values:
                if value and value not in self._values[named]:
                    raise _fail(key, f'there is no entry "{value}" in {named}', value, self._values[named], "It has")

    def _entries(self, kind: str) -> Sequence[str]:
        """Return the entries whose objects the chart creates."""
        platform = self._platform
        return {
            CLUSTER_QUEUES: platform.queue_names,
            COHORTS: [cohort.name for cohort in platform.cohorts],
            _TEAMS: [*platform.teams],
            _PRIORITIES: [*platform.priorities],
        }[kind]

    def current(self, path: KeyPath) -> Any:
        """Return the value of a key now; None if it is not set."""
        node: Any = self._values
        for part in path:
            node = node.get(part) if isinstance(node, Mapping) else None
        return node

    def changed(self, choice: Choice) -> Platform:
        """Return the platform with these keys changed, which have been checked. Raises CohortCycle."""
        values = copy.deepcopy(self._values)
        for path, value in choice.items():
            node = values
            for part in path[:-1]:
                node = node.setdefault(part, {})
            node[path[-1]] = value
        before = self._platform
        priorities = {name: int(values[_PRIORITIES][name].get("value") or 0) for name in before.priorities}
        fields = {path[:3] for path in choice}
        if priorities != before.priorities:  # preemption.maxPriorityThreshold is the number of a priority
            fields |= {(CLUSTER_QUEUES, name, "preemption") for name in before.queue_names}
        tables = Tables(
            self._flavors, {name: int((each or {}).get("value") or 0) for name, each in values[_PRIORITIES].items()}
        )

        def spec(kind: str, owner: QuotaOwner) -> Manifest:
            changed = [key for of, name, key in fields if (of, name) == (kind, owner.name)]
            return _with_fields(owner, kind, changed, values[kind][owner.name] if changed else {}, tables)

        queues = [ClusterQueue(spec(CLUSTER_QUEUES, queue)) for queue in before.cluster_queues]
        cohorts = [Cohort(spec(COHORTS, cohort)) for cohort in before.cohorts]
        specs.check_cohorts(cohorts)
        flavors = {name: flavor for name, flavor in before.flavors.items() if name in before.resource_flavors}
        for name in specs.flavors_of(queues):
            flavors.setdefault(name, SliceFlavor(name))
        teams = {
            name: Team(name, values[_TEAMS][name]["clusterQueue"]) if (_TEAMS, name, "clusterQueue") in choice else team
            for name, team in before.teams.items()
        }
        after = replace(
            before, cluster_queues=queues, cohorts=cohorts, flavors=flavors, teams=teams, priorities=priorities
        )
        return with_slices(after, self._slices)


def _with_fields(
    owner: QuotaOwner, kind: str, keys: Iterable[str], entry: Mapping[str, Any], tables: Tables
) -> Manifest:
    """Return the object with the fields that follow from these keys of its entry."""
    spec = dict(owner.spec)
    for key in keys:
        field, value_of = FIELDS[kind][key]
        value = value_of(entry, tables)
        if value is None:
            spec.pop(field, None)
        else:
            spec[field] = value
    return {**owner.raw, "spec": spec}


def _object_of(flavor: str, versioned: bool, platform: Platform) -> str:
    """Return the name of a flavor's ResourceFlavor; if it is versioned, the name ends in a hash."""
    if not versioned:
        return flavor
    pattern = re.compile(rf"{re.escape(flavor)}-[0-9a-f]{{8}}")
    return next((name for name in platform.flavors if pattern.fullmatch(name)), flavor)


def _fail(key: str, clause: str, word: str, known: Iterable[str], known_title: str) -> UsageError:
    names = sorted(known)
    near = closest(word, names) if word else []
    end = f'; did you mean "{near[0]}"?' if near else "."
    return UsageError(
        f'{WITHIN} "{key}": {clause}{end}', f"{known_title} {join_or(names, 'and')}." if names and not near else ""
    )


def differences(simulated: Platform, rendered: Platform) -> list[str]:
    """Return what differs, such as "ClusterQueue research". Amounts are compared as numbers: 1000 is 1k."""

    def different(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
        return sorted(name for name in {*first, *other} if first.get(name) != other.get(name))

    def by_name(owners: Iterable[QuotaOwner]) -> dict[str, Any]:
        return {owner.name: _comparable(owner.spec) for owner in owners}

    queues = different(by_name(simulated.cluster_queues), by_name(rendered.cluster_queues))
    cohorts = different(by_name(simulated.cohorts), by_name(rendered.cohorts))
    return [
        *(f"ClusterQueue {name}" for name in queues),
        *(f"Cohort {name}" for name in cohorts),
        *(f"ResourceFlavor {name}" for name in different(simulated.flavors, rendered.flavors)),
        *(f"LocalQueue of {name}" for name in different(simulated.teams, rendered.teams)),
        *(f"WorkloadPriorityClass {name}" for name in different(simulated.priorities, rendered.priorities)),
    ]


def _comparable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: quantity(below) if key in _QUANTITIES else _comparable(below) for key, below in value.items()}
    return [_comparable(each) for each in value] if isinstance(value, list) else value
