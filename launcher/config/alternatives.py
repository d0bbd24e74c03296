"""Split a run whose values have slice.any into runs that launcher submits one after another. Pure.

Alternatives that differ only in how their machines are provisioned share a run: charts/run renders one object whose
pods accept the nodes of each, and Kueue takes the first flavor of the queue that has room. Other alternatives have
other hosts, resources or values of training, so each needs an object of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher import formatting
from launcher.config.kinds import RunKind
from launcher.config.provisioning import ways
from launcher.config.values.tree import Node, Origin, Values, from_plain, merge_nodes, set_value, with_defaults

AFTER_SECONDS = 1800.0
"""How long the alternatives before one without `after` wait."""

_ANY = ("slice", "any")
_SHARED = ("provisioning", "reservation")
_KEYS = ("accelerator", "topology", "machineType", "count", "hosts", *_SHARED)


@dataclass(frozen=True)
class Alternative:
    """One or more alternatives of slice.any that share a run.

    `number` counts the runs from 1, out of `of`. `says` describes the machines: "v6e 4x4, spot or flex-start". The run
    is submitted if the one before it has waited for `after` seconds.
    """

    number: int
    of: int
    says: str
    after: float

    def __str__(self) -> str:
        return f"alternative {self.number} of {self.of} ({self.says})"


@dataclass(frozen=True)
class Split:
    """The values of one run: the user's, with an alternative in the place of slice.any.

    `members` are the same values for each of the alternatives that share the run, with their numbers in the list.
    """

    alternative: Alternative
    user: Values
    members: tuple[tuple[int, Values], ...]


def split(user: Values, defaults: Values) -> list[Split]:
    """Return the values of each run in the order of slice.any; [] if slice.any is empty or invalid as a whole.

    Raises ValueError with a sentence if `after` of an alternative is invalid.
    """
    tree = with_defaults(user, defaults).tree
    items = (tree.get("slice") or {}).get("any") if isinstance(tree.get("slice"), dict) else None
    kind = (tree.get("run") or {}).get("kind") if isinstance(tree.get("run"), dict) else None
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        return []
    if kind in list(RunKind) and not RunKind(kind).has_object:
        return []  # a rule reports it
    origin = user.origin(_ANY) or Origin("", 1)
    groups: list[list[tuple[int, Mapping[str, Any]]]] = []
    for number, item in enumerate(items, start=1):
        same = groups and "after" not in item and _shape(tree, item) == _shape(tree, groups[-1][0][1])
        if same:
            groups[-1].append((number, item))
        else:
            groups.append([(number, item)])
    splits = []
    for position, group in enumerate(groups, start=1):
        first = group[0][1]
        alternative = Alternative(position, len(groups), _says(tree, [item for _, item in group]), _after(*group[0]))
        members = tuple((number, _apply(user, item, origin)) for number, item in group)
        values = members[0][1]
        if len(group) > 1:
            rest = {key: value for key, value in first.items() if key not in _SHARED}
            shared = [{key: item[key] for key in _SHARED if key in item} for _, item in group]
            values = set_value(_apply(user, rest, origin), _ANY, shared, origin)
        splits.append(Split(alternative, values, members))
    return splits


def members(values: Values) -> list[tuple[str, Values]]:
    """Return the effective values of each alternative that shares a run, and a description of each; [] if none do."""
    tree, origin = values.tree, values.origin(_ANY) or Origin("", 1)
    return [(_says(tree, [item]), _apply(values, item, origin)) for item in tree["slice"]["any"]]


def _apply(user: Values, item: Mapping[str, Any], origin: Origin) -> Values:
    """Return the values with the keys of an alternative in slice, and its train over theirs."""
    values = set_value(user, _ANY, [], origin)
    for key, value in item.items():
        if key == "train":
            overlay = Node({"train": from_plain(value, origin)}, values.root.origin)
            values = Values(merge_nodes(values.root, overlay)) if isinstance(value, dict) else values
        elif key != "after":
            values = set_value(values, ("slice", key), value, origin)
    return values


def _shape(tree: Mapping[str, Any], item: Mapping[str, Any]) -> list[Any]:
    return [item.get(key, tree["slice"].get(key)) for key in _KEYS if key not in _SHARED] + [item.get("train") or {}]


def _after(number: int, item: Mapping[str, Any]) -> float:
    if "after" not in item:
        return AFTER_SECONDS
    seconds = formatting.seconds(str(item["after"]))
    if seconds is None or isinstance(item["after"], bool):
        raise ValueError(
            f'slice.any: alternative {number}: after: "{item["after"]}" is not a valid duration; use 90s, 30m or 1.5h.'
        )
    return seconds


def _says(tree: Mapping[str, Any], items: list[Mapping[str, Any]]) -> str:
    slice_ = {**tree["slice"], **items[0]}
    count = slice_.get("count") or 1
    shape = slice_.get("topology") or (f"{slice_['hosts']} hosts" if slice_.get("hosts") else "")
    machines = " ".join(
        filter(None, [str(slice_.get("accelerator")), str(shape), str(slice_.get("machineType") or "")])
    )
    provisioned = ways([{**tree["slice"], **item} for item in items])
    return f"{f'{count} x ' if count != 1 else ''}{machines}, {provisioned}"
