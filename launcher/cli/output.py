"""The command's output: data on stdout, progress and warnings on stderr."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from launcher.config.values.files import dumps


def narrate(*lines: str) -> None:
    """Print lines for the user on stderr; never data."""
    for line in lines:
        sys.stderr.write(line + "\n")
    sys.stderr.flush()


def emit(data: Any, form: str, text: str) -> None:
    """Print the result of a verb: `data` as JSON or YAML, or `text` (nothing if it is empty)."""
    if form == "json":
        text = json.dumps(plain(data), indent=2, ensure_ascii=False)
    elif form == "yaml":
        text = dumps(plain(data))
    if text:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def plain(data: Any) -> Any:
    """Convert `data` to JSON types: a number that is not finite becomes null, as in metrics.jsonl."""
    if isinstance(data, dict):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return str(data) if isinstance(data, str) else data  # an enum member becomes its text
