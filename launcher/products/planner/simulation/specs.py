"""Check the specs of ClusterQueues and Cohorts for what the simulation does not follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config.suggest import closest, join_or
from launcher.errors import LauncherError
from launcher.k8s.kueue.queues import ClusterQueue, Cohort
from launcher.k8s.objects import Object, quantity

_Check = Callable[[Any], str]
"""Returns what is wrong with a value, as the end of a sentence, or ""."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A field of an object that is not valid, not known, or not simulated: its path, and a clause about it."""

    path: str
    clause: str
    not_simulated: bool = False
    unknown: bool = False


def _text(value: Any) -> str:
    return "" if isinstance(value, str) else "must be text"


def _name(value: Any) -> str:
    return "" if isinstance(value, str) and value else "must be a name"


def _integer(value: Any) -> str:
    return "" if isinstance(value, int) and not isinstance(value, bool) else "must be a whole number"


def _names(value: Any) -> str:
    return "" if isinstance(value, list) and all(isinstance(each, str) for each in value) else "must be a list of names"


def _amount(value: Any) -> str:
    try:
        amount = quantity(value)
    except ValueError:
        return f'is "{value}", which is not a quantity'
    return "must not be negative" if amount < 0 else ""


def _word(*words: str) -> _Check:
    def check(value: Any) -> str:
        return "" if value in words else f'is "{value}"; the values are {join_or(words)}'

    return check


def _anything(value: Any) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class _List:
    """A list of maps with these fields."""

    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Unsupported:
    """A field that is not simulated, unless it has one of these values."""

    feature: str
    neutral: tuple[Any, ...] = (None, {}, [])


_GROUPS = _List(
    {
        "coveredResources": _names,
        "flavors": _List(
            {
                "name": _name,
                "resources": _List(
                    {"name": _name, "nominalQuota": _amount, "borrowingLimit": _amount, "lendingLimit": _amount}
                ),
            }
        ),
    }
)
_FAIR = {"weight": _amount}
_COHORT: Mapping[str, Any] = {"parentName": _text, "parent": _text, "resourceGroups": _GROUPS, "fairSharing": _FAIR}
_CLUSTER_QUEUE: Mapping[str, Any] = {
    "cohortName": _text,
    "cohort": _text,
    "namespaceSelector": _anything,
    "queueingStrategy": _word("BestEffortFIFO", "StrictFIFO"),
    "resourceGroups": _GROUPS,
    "fairSharing": _FAIR,
    "stopPolicy": _word("None", "Hold", "HoldAndDrain"),
    "preemption": {
        "withinClusterQueue": _word("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
        "reclaimWithinCohort": _word("Never", "LowerPriority", "Any"),
        "borrowWithinCohort": {"policy": _word("Never", "LowerPriority"), "maxPriorityThreshold": _integer},
    },
    "flavorFungibility": {
        "whenCanBorrow": _word("MayStopSearch", "TryNextFlavor", "Borrow"),
        "whenCanPreempt": _word("MayStopSearch", "TryNextFlavor", "Preempt"),
        "preference": _word("BorrowingOverPreemption", "PreemptionOverBorrowing"),
    },
    "admissionScope": _Unsupported("admission fair sharing", (None, {}, {"admissionMode": "NoAdmissionFairSharing"})),
    "admissionChecksStrategy": _Unsupported("admission checks", (None, {}, {"admissionChecks": []})),
    "concurrentAdmissionPolicy": _Unsupported("concurrent admission of a run to several flavors"),
}


def cluster_queue_findings(spec: Object) -> list[Finding]:
    """Return what is not valid, or is not simulated, in the spec of a ClusterQueue."""
    return list(_map(spec, _CLUSTER_QUEUE, "spec"))


def cohort_findings(spec: Object) -> list[Finding]:
    """Return what is not valid, or is not simulated, in the spec of a Cohort."""
    return list(_map(spec, _COHORT, "spec"))


def _map(value: Any, fields: Mapping[str, Any], path: str) -> Iterator[Finding]:
    if not isinstance(value, Mapping):
        yield Finding(path, "must be a map")
        return
    for key, below in value.items():
        here = f"{path}.{key}"
        if key not in fields:
            near = closest(str(key), fields)
            clause = "is not a known field" + (f'; did you mean "{near[0]}"?' if near else "")
            yield Finding(here, clause, unknown=True)
        else:
            yield from _field(below, fields[key], here)


def _field(value: Any, rule: Any, path: str) -> Iterator[Finding]:
    if isinstance(rule, _Unsupported):
        if value not in rule.neutral:
            yield Finding(path, f"is {rule.feature}, which is not simulated", not_simulated=True)
    elif value is None:
        return
    elif isinstance(rule, Mapping):
        yield from _map(value, rule, path)
    elif isinstance(rule, _List):
        if not isinstance(value, list):
            yield Finding(path, "must be a list")
            return
        for index, item in enumerate(value):
            yield from _map(item, rule.fields, f"{path}[{index}]")
    elif clause := rule(value):
        yield Finding(path, clause)


class CohortCycle(LauncherError):
    """Cohorts that are each other's parents."""


def check_cohorts(cohorts: Iterable[Cohort]) -> None:
    """Raise CohortCycle if the cohorts are a cycle."""
    if cycle := cohort_cycle(cohorts):
        raise CohortCycle(
            f"The cohorts are a cycle: {' -> '.join(cycle)}.",
            "Kueue admits no run in a cycle of cohorts; remove the parent of one of them.",
        )


def cohort_cycle(cohorts: Iterable[Cohort]) -> list[str]:
    """Return the names of cohorts that are each other's parents, beginning and ending with the same; [] without."""
    parents = {cohort.name: cohort.parent for cohort in cohorts}
    for start in sorted(parents):
        path = [start]
        while parent := parents.get(path[-1]):
            if parent in path:
                return [*path[path.index(parent) :], parent]
            path.append(parent)
    return []


def flavors_of(queues: Iterable[ClusterQueue]) -> list[str]:
    """Return the flavors of these queues, in the order of their names."""
    return sorted({flavor for queue in queues for group in queue.groups for flavor in group.flavors})


def duplicates(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once."""
    return sorted({each for each in names if names.count(each) > 1})
