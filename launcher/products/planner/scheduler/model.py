"""The input and the result of the simulation of Kueue's scheduler: plain values, without I/O.

Times are seconds from the start of the simulation. Amounts are those of `launcher.k8s.objects.quantity`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from launcher.k8s.kueue.queues import ClusterQueue, Cohort

Flavors = tuple[Mapping[str, str], ...]
"""The flavor of each resource, for each pod set of a job in its order."""

Version = tuple[int, ...]
"""A version of Kueue: (0, 19, 2), or (0, 19) for the newest patch of 0.19."""

What = Literal["created", "admitted", "evicted", "released", "finished"]


@dataclass(frozen=True, slots=True)
class PodSetRequest:
    """The total requests of a pod set, by resource.

    `flavors` has the flavors whose nodes its pods accept; None means every flavor.
    """

    amounts: Mapping[str, Decimal]
    flavors: frozenset[str] | None = None
    name: str = "main"


@dataclass(frozen=True, slots=True)
class Holding:
    """The quota that a job holds when the simulation starts. `reserved` is the time of its reservation, 0 or less."""

    flavors: Flavors
    reserved: float = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """A run, as Kueue's scheduler sees its Workload.

    It is in the queue from `created` and needs `takes` seconds from its admission to its end; `takes_before` has other
    times for its first admissions, in their order. `admission_delay` is the time that its admission checks take after
    the reservation of quota. An eviction releases its quota after `frees` seconds: one value for each eviction in
    their order, and the last value for all later ones. After an eviction it starts from the beginning, or, if
    `checkpoint_every` is set, from the last multiple of these seconds.
    """

    name: str
    queue: str
    pod_sets: tuple[PodSetRequest, ...]
    priority: int
    created: float
    takes: float
    frees: tuple[float, ...] = (0.0,)
    takes_before: tuple[float, ...] = ()
    checkpoint_every: float | None = None
    admission_delay: float = 0.0
    holding: Holding | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A flavor that has no nodes from `start` to `end`. Its jobs are evicted, and no job is admitted to it."""

    flavor: str
    start: float
    end: float


PreemptionStrategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]


@dataclass(frozen=True, slots=True)
class KueueSettings:
    """The version of Kueue and the parts of its Configuration that the simulation follows.

    `fair_sharing` has the preemption strategies of fair sharing in their order; None if it is off. `cycle_seconds` is
    the time of one cycle of the scheduler, and `decision_seconds` the time until a decision is in the API server: the
    medians of Kueue 0.19 on a small machine.
    """

    version: Version = (0, 19)
    fair_sharing: tuple[PreemptionStrategy, ...] | None = None
    cycle_seconds: float = 0.01
    decision_seconds: float = 0.07


@dataclass(frozen=True, slots=True)
class Scenario:
    """Queues, and the jobs that arrive in them. The order of the objects and of the jobs does not matter."""

    cluster_queues: Sequence[ClusterQueue]
    cohorts: Sequence[Cohort]
    jobs: Sequence[Job]
    outages: Sequence[Outage] = ()
    settings: KueueSettings = field(default_factory=KueueSettings)


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why a job is evicted: Kueue's reason, and the job that preempts it, or ""."""

    reason: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to a job. `flavors` belongs to "admitted", `eviction` to "evicted"."""

    at: float
    job: str
    what: What
    flavors: Flavors = ()
    eviction: Eviction | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The time in which a job holds quota. `end` is None if the simulation ends before it.

    `start` is the reservation of quota and `released` the time when others may use it again. `kept` is the part of
    `takes` that the job need not repeat, in seconds, with what it kept of earlier attempts.
    """

    job: str
    flavors: Flavors
    start: float
    admitted: float
    end: float | None = None
    released: float | None = None
    eviction: Eviction | None = None
    kept: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happens, sorted by time. `never` has the jobs that do not end, and why: a sentence without a full stop.

    `blocked_by` has those of them that the first job of a StrictFIFO queue keeps from starting, and that job.
    """

    events: Sequence[Event]
    attempts: Mapping[str, Sequence[Attempt]]
    never: Mapping[str, str]
    blocked_by: Mapping[str, str] = field(default_factory=dict)
