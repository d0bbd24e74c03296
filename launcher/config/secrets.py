"""Hide the values of environment variables that contain secrets, in text for other people: reports and differences.

Values with such variables are rejected (charts/_rules.json), but a run that an older version
submitted, or an object that another program created, may have them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.config.checks import value_rules

HIDDEN = "(hidden)"


def is_secret(name: str) -> bool:
    """Return whether a variable of this name contains a secret, by the patterns of the rule for worker.env."""
    patterns = value_rules.table()["patterns"]
    return bool(re.search(patterns["secretVariable"], name) and not re.search(patterns["plainVariable"], name))


def hide(path: Sequence[str], value: Any) -> Any:
    """Return the value at `path` of a run config or an object, with "(hidden)" for each secret variable in it.

    Variables are the entries of a map `env`, or the items of a list `env`, which a path has as "[NAME]".
    """
    if isinstance(value, Mapping):
        if isinstance(value.get("value"), str) and is_secret(str(value.get("name", ""))):
            return {**value, "value": HIDDEN}
        return {key: hide((*path, str(key)), child) for key, child in value.items()}
    if isinstance(value, list):
        return [hide(path, child) for child in value]
    if not (isinstance(value, str) and value):
        return value
    listed = len(path) > 2 and path[-1] == "value" and path[-3] == "env"
    mapped = len(path) > 1 and path[-2] == "env"
    if (listed and is_secret(path[-2].strip("[]"))) or (mapped and is_secret(path[-1])):
        return HIDDEN
    return value
