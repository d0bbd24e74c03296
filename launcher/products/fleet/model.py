"""The runs of a fleet as typed values: when each waited, and when it had which chips. Times are Unix seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Period:
    """The time from `start` up to but not including `end`."""

    start: float
    end: float

    def overlap(self, start: float, end: float) -> float:
        """Return the seconds of the period that are between two times."""
        return max(0.0, min(end, self.end) - max(start, self.start))


@dataclass(frozen=True, slots=True)
class Attempt:
    """A time in which a run had its chips. `evicted` is why Kueue took them ("Preempted"), or "".

    `placed` is False if only the duration is known: the attempt then ends when the run was evicted last.
    """

    start: float
    end: float
    evicted: str = ""
    placed: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in a queue, until the run got its quota. A run that still waits has no `end`."""

    start: float
    end: float | None


@dataclass(frozen=True, slots=True)
class Slowness:
    """Why a run is slower than it should be, by its record: in its last attempt, and only while that has not ended.

    `slower` is the part by which a step takes longer than in the forecast, since the time `since`; 0 if it does not.
    `hosts` are sentences about its slow hosts.
    """

    slower: float
    since: float | None
    hosts: Sequence[str]


@dataclass(frozen=True)
class FleetRun:
    """A run: an object in a queue, whether Slipway created it or not.

    `chips` has the chips by flavor while the run has quota. `state` is waiting, running, succeeded, failed or ended.
    `user` is "" if no record has it. `losses` are seconds by cause, and `goodput` is a share from 0 to 1; they are
    known if the run has a record.
    """

    uid: str
    name: str
    namespace: str
    team: str
    queue: str
    state: str
    created: float
    chips: Mapping[str, int]
    attempts: Sequence[Attempt] = ()
    waits: Sequence[Wait] = ()
    user: str = ""
    priority: str = ""
    preemptions: int = 0
    steps: int | None = None
    tokens: int | None = None
    goodput: float | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
    accelerators: Mapping[str, str] = field(default_factory=dict)
    slowness: Slowness | None = None

    @property
    def total_chips(self) -> int:
        return sum(self.chips.values())

    def held(self, period: Period) -> Iterator[tuple[Attempt, float]]:
        """Yield each attempt of the period, and its seconds in it."""
        for attempt in self.attempts:
            if seconds := period.overlap(attempt.start, attempt.end):
                yield attempt, seconds
