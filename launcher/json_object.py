"""JSON of others, which may be damaged: an object, or None."""

from __future__ import annotations

import json
from typing import Any


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object that the text is; None for one that was cut, is nested beyond reason, or is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
