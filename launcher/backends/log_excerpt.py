"""The part of a run's log that a user asks for: its last lines, or the lines since a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from launcher.errors import UsageError
from launcher.json_object import json_object
from launcher.trainer_output import EVENT_PREFIX, METRICS_PREFIX


@dataclass(frozen=True)
class Excerpt:
    """The last `tail` lines of those written since `since`, in seconds since 1970. None: no limit.

    With `follow`, it selects among the lines that exist at the start; all later lines follow.
    """

    tail: int | None = None
    since: float | None = None

    @property
    def is_whole(self) -> bool:
        return self.tail is None and self.since is None

    def of(self, lines: Iterable[str]) -> Sequence[str]:
        """Return the selected lines of a log without timestamps.

        The trainer's lines contain times: the lines up to the last one before `since` are left out.
        """
        kept: deque[str] = deque(maxlen=self.tail)
        for line in lines:
            kept.append(line)
            if self.since is not None and (time := _time(line)) is not None and time < self.since:
                kept.clear()
        return kept


WHOLE = Excerpt()


def check_times(excerpt: Excerpt, config: Mapping[str, Any]) -> None:
    """Raise UsageError if lines since a time are wanted of a run whose log contains no times."""
    if excerpt.since is not None and (config.get("run") or {}).get("command"):
        raise UsageError("The output of run.command has no times, so --since cannot select lines; use --tail.")


def _time(line: str) -> float | None:
    """Return the time of a line of the trainer, in seconds since 1970; None for a line without one."""
    for prefix in (METRICS_PREFIX, EVENT_PREFIX):
        _, separator, text = line.partition(prefix)
        entry = json_object(text) if separator else None
        if entry is not None:
            try:
                return datetime.fromisoformat(str(entry.get("time"))).timestamp()
            except (ValueError, OverflowError):
                return None
    return None
