"""The platform that queues values describe: rendered by the chart, as `launcher install queues` does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.config import accelerators
from launcher.config.accelerators import Slice
from launcher.config.suggest import closest
from launcher.config.values import assignment
from launcher.config.values.tree import SET, Origin, Values, dotted, plain
from launcher.errors import UsageError
from launcher.k8s.objects import quantity
from launcher.products.planner.simulation.platform import Platform, from_objects, with_slices
from launcher.releases import offline
from launcher.releases import values as release_values

CHART = "queues"


def platform(files: Sequence[str], sets: Sequence[str] = ()) -> Platform:
    """Return the queues of these values. A `--set` may change a number by an amount: KEY=+4 or KEY=-2.

    Raises CheckFailed if the values are not valid, with file and line, and LauncherError if they have no queue.
    """
    return platform_of(*release_values.load(CHART, files, resolve_changes(files, sets)))


def platform_of(user: Values, effective: Values) -> Platform:
    """Return the queues of loaded values. Raises CheckFailed if the chart rejects them."""
    rendered = offline.render_values(CHART, None, user, effective)
    common = effective.tree["common"]
    platform = from_objects(rendered.data, common["accelerators"], common.get("prices") or {})
    if not platform.cluster_queues:
        raise UsageError(
            "The values have no ClusterQueue.", "Use the values of launcher install queues: -f queues.yaml"
        )
    return with_slices(platform, slices(effective.tree))


def slices(effective: Mapping[str, Any]) -> dict[str, Slice]:
    """Return the slice of each flavor of effective values."""
    flavors = effective["flavors"].items()
    return {name: accelerators.of_flavor(flavor, effective) for name, flavor in flavors if flavor.get("accelerator")}


def resolve_changes(files: Sequence[str], sets: Sequence[str]) -> list[str]:
    """Return the assignments with relative numbers replaced by absolute ones: KEY=+4 adds 4 to the value of KEY.

    Only a number or a quantity can be changed by an amount. For any other value, "+4" is the new value itself.
    """
    done: list[str] = []
    for number, text in enumerate(sets, start=1):
        key, _, value = text.partition("=")
        if value[:1] in "+-" and value[1:2].isdecimal():
            done.append(_changed(release_values.load(CHART, files, done)[1], key, value, number))
        else:
            done.append(text)
    return done


def _changed(effective: Values, key: str, change: str, number: int) -> str:
    axis = assignment.read_sweep(f"{key}=null", Origin(SET, number))
    node = effective.root
    for part in axis.parts:
        if not isinstance(node.value, dict) or part not in node.value:
            near = closest(str(part), map(str, node.value)) if isinstance(node.value, dict) else []
            raise UsageError(
                f'{SET} "{key}={change}": {dotted(map(str, axis.parts))} has no value that {change} could change.',
                f'Did you mean "{near[0]}" instead of "{part}"?' if near else f"Set it to a number: {SET} {key}=4",
            )
        node = node.value[part]
    old = plain(node)
    try:
        before, amount = quantity(old if old is not None else 0), quantity(change)
    except ValueError:
        raise UsageError(f'{SET} "{key}={change}": the value is {json.dumps(old)}, which is not a number.') from None
    new = before + amount
    if new < 0:
        raise UsageError(f'{SET} "{key}={change}": the value is {old}, so the result would be {new}, below 0.')
    whole = new == new.to_integral_value()
    shown = str(int(new)) if whole else f"{new.normalize():f}"
    return f'{key}="{shown}"' if isinstance(old, str) else f"{key}={shown}"
