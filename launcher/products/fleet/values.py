"""The values of launcher fleet: the key `fleet`, and the values of charts/queues, of which common.prices is used."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from launcher.config.checks.problems import ERROR, CheckContext
from launcher.config.checks.schema import violations
from launcher.config.plan import CheckFailed
from launcher.config.values import files as values_files
from launcher.config.values.tree import Node, Values, with_defaults
from launcher.releases import values as release_values

_HERE = Path(__file__).parent
KEY = "fleet"


@dataclass(frozen=True)
class FleetValues:
    """The effective values of the key `fleet`, its time zone, and the tables of accelerators and prices (`common`)."""

    fleet: Mapping[str, Any]
    zone: ZoneInfo
    common: Mapping[str, Any]


def load(files: Sequence[str], sets: Sequence[str]) -> FleetValues:
    """Return the values. Raises CheckFailed, with the file and the line of each violation."""
    user = values_files.load(files, sets)
    own = Values(Node({key: node for key, node in user.root.value.items() if key == KEY}, user.root.origin))
    others = Values(Node({key: node for key, node in user.root.value.items() if key != KEY}, user.root.origin))
    case = CheckContext(user, with_defaults(own, values_files.read_file(str(_HERE / "values.yaml"))))
    problems = [release_values.problem_of(violation, schema(), case) for violation in violations(schema(), case.tree)]
    if problems:
        raise CheckFailed(problems)
    fleet = case.tree[KEY]
    try:
        zone = ZoneInfo(fleet["timezone"])
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = (
            f'fleet.timezone is "{fleet["timezone"]}", which is not a time zone; write a name such as Europe/Berlin.'
        )
        raise CheckFailed([case.problem("timezone", (KEY, "timezone"), message, ERROR)]) from error
    queues = release_values.effective_of("queues", release_values.without_cluster(others))
    return FleetValues(fleet, zone, queues.tree["common"])


@cache
def schema() -> Mapping[str, Any]:
    """Return the JSON Schema of the key `fleet`."""
    tree: Mapping[str, Any] = json.loads((_HERE / "values.schema.json").read_text(encoding="utf-8"))
    return tree
