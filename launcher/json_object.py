"""Parse JSON from external sources, which may be invalid, to an object or None."""

from __future__ import annotations

import json
from typing import Any


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """Parse `text` as a JSON object; None if it is truncated, nested too deeply, or not an object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
