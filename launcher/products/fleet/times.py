"""Parse the start and the end of a period."""

from __future__ import annotations

from datetime import date, datetime, time
from zoneinfo import ZoneInfo

from launcher import formatting
from launcher.errors import UsageError


def moment(text: str, now: float, zone: ZoneInfo, option: str) -> float:
    """Return a time in Unix seconds: a duration before `now`, a date (its midnight in `zone`), or a time.

    Raises UsageError.
    """
    seconds = formatting.seconds(text)
    if seconds is not None:
        return now - seconds
    try:
        return datetime.combine(date.fromisoformat(text), time(), zone).timestamp()
    except ValueError:
        pass
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f'{option}: "{text}" is not a time; write a duration such as 30d, a date such as 2026-11-01, or a time '
            "such as 2026-11-01T08:00:00Z."
        ) from error
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)).timestamp()
