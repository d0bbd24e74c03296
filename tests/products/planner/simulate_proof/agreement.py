"""Compare the events of a simulation with those of a recording.

Both have the form of the recordings: {"id", "events": [[seconds, run, what, detail]], "never": [run]}.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOISE = 1.5
"""Seconds within which two events of a recording may have happened in the other order."""

CLOSE = 2.0
"""Seconds by which a simulated start may differ from the recorded one."""

_Key = tuple[str, str, int]  # a run, "admitted" or "evicted", and how many of them the run had before


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a simulation compares with the recording of a scenario.

    `differences` has a sentence for each difference. `errors` has the difference of each admission's time in seconds,
    for those that both have; `admissions` is the number of admissions in the recording.
    """

    scenario: str
    differences: Sequence[str]
    admissions: int
    errors: Sequence[float]

    @property
    def agrees(self) -> bool:
        return not self.differences

    @property
    def close_starts(self) -> int:
        """The number of admissions that the simulation has within CLOSE seconds."""
        return sum(abs(error) <= CLOSE for error in self.errors)


@dataclass(frozen=True, slots=True)
class _Happened:
    at: float
    detail: str


def compare(recording: Mapping[str, Any], simulated: Mapping[str, Any]) -> Agreement:
    """Compare the admissions, evictions and unfinished runs of a scenario."""
    real, ours = _decisions(recording["events"]), _decisions(simulated["events"])
    differences = [
        *_counts(real, ours),
        *(
            f"{_title(key)}: recorded {real[key].detail} at {real[key].at:.1f} s, "
            f"simulated {ours[key].detail} at {ours[key].at:.1f} s"
            for key in real
            if key in ours and real[key].detail != ours[key].detail
        ),
        *_swaps(real, ours),
    ]
    never, our_never = set(recording["never"]), set(simulated["never"])
    if never != our_never:
        differences.append(f"never finished: recorded {sorted(never)}, simulated {sorted(our_never)}")
    admissions = [key for key in real if key[1] == "admitted"]
    errors = [ours[key].at - real[key].at for key in admissions if key in ours]
    return Agreement(str(recording["id"]), differences, len(admissions), errors)


def first_difference(
    recording: Mapping[str, Any], simulated: Mapping[str, Any], until: float | None = None
) -> tuple[float, str] | None:
    """Return the time and the title of the first decision that differs, or whose time differs by half of NOISE.

    If there is none, the orders are the same except for the noise. Differences after `until` do not count.
    """
    real, ours = _decisions(recording["events"]), _decisions(simulated["events"])
    found = []
    for key in {**real, **ours}:
        one, other = real.get(key), ours.get(key)
        if one is None or other is None:
            found.append(((one or other or _Happened(0.0, "")).at, _title(key)))
        elif one.detail != other.detail or abs(one.at - other.at) > NOISE / 2:
            found.append((min(one.at, other.at), _title(key)))
    first = min(found, default=None)
    return first if first is not None and (until is None or first[0] < until) else None


def _decisions(events: Iterable[Sequence[Any]]) -> dict[_Key, _Happened]:
    """Return the admissions and evictions in the order of their times."""
    before: defaultdict[tuple[str, str], int] = defaultdict(int)
    found: dict[_Key, _Happened] = {}
    for at, run, what, detail in sorted(events, key=lambda event: float(event[0])):
        if what not in ("admitted", "evicted"):
            continue
        text = ",".join(detail) if what == "admitted" else str(detail.get("preempted") or detail["reason"])
        found[run, what, before[run, what]] = _Happened(float(at), text)
        before[run, what] += 1
    return found


def _counts(real: Mapping[_Key, _Happened], ours: Mapping[_Key, _Happened]) -> list[str]:
    missing = [f"{_title(key)}: recorded at {real[key].at:.1f} s, not simulated" for key in real if key not in ours]
    extra = [f"{_title(key)}: simulated at {ours[key].at:.1f} s, not recorded" for key in ours if key not in real]
    return [*missing, *extra]


def _swaps(real: Mapping[_Key, _Happened], ours: Mapping[_Key, _Happened]) -> list[str]:
    """Return the pairs of events that the recording has in one order, and the simulation in the other."""
    keys = [key for key in real if key in ours]
    return [
        f"{_title(first)} at {real[first].at:.1f} s, before {_title(second)} at {real[second].at:.1f} s; "
        f"simulated at {ours[first].at:.1f} s and {ours[second].at:.1f} s"
        for place, first in enumerate(keys)
        for second in keys[place + 1 :]
        if real[second].at - real[first].at > NOISE and ours[second].at < ours[first].at
    ]


def _title(key: _Key) -> str:
    run, what, number = key
    return f"{run} {what}" + (f" (number {number + 1})" if number else "")
