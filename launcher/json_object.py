"""Parse JSON from external sources, which may be invalid, to an object or None."""

from __future__ import annotations

import json
import re
from typing import Any

_LEVELS = 50
_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def load_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError, or RecursionError if it is nested too deeply.

    Half of a surrogate pair, which JSON can escape ("\\ud800") but no file or terminal can have, becomes U+FFFD.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    data = json.loads(text)
    if not _ESCAPED.search(text):
        return data
    return json.loads(_SURROGATE.sub("\ufffd", json.dumps(data, ensure_ascii=False)))


def is_shallow(tree: Any) -> bool:
    """Return whether a JSON value has at most 50 levels, so that functions that call themselves can process it."""
    level = [tree]
    for _ in range(_LEVELS):
        level = [
            below
            for value in level
            if isinstance(value, dict | list)
            for below in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return True
    return False


def is_surely_shallow(text: str | bytes) -> bool:
    """Return whether a JSON text has so few brackets that its value is shallow. This is faster than `is_shallow`."""
    if isinstance(text, bytes):
        return text.count(b"{") + text.count(b"[") <= _LEVELS
    return text.count("{") + text.count("[") <= _LEVELS


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """Parse `text` as a JSON object; None if it is truncated, nested too deeply, or not an object."""
    try:
        data = load_json(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
