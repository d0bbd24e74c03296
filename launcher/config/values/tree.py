"""A tree of values in which every key knows the file and line that wrote it, and Helm's rules for merging two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

KeyPath = tuple[str, ...]
SET = "--set"
SWEEP = "--sweep"
"""The file names in the origins of what `--set` and `--sweep` gave; the line is the option's number, from 1."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: the file as the user named it, and the line of its key, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        if self.file.startswith("--"):  # an option: --set and --sweep are numbered, --name is there once
            return f"{self.file} {self.line}" if self.file in (SET, SWEEP) else self.file
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its origin: `value` is a dict of nodes for a map, else plain data (a list is one value)."""

    value: Any
    origin: Origin


class Values:
    """A tree of values, and where each of them was written. Immutable: layers make new ones.

    `tree` is plain data: dict, list, str, bool, int, float, None. Numbers are what Helm makes of them, float64;
    those without a fraction are ints here (as in the JSON that Helm writes).
    """

    def __init__(self, root: Node) -> None:
        self.root = root

    @classmethod
    def empty(cls, file: str = "") -> Values:
        """A tree without a key."""
        return cls(Node({}, Origin(file, 1)))

    @cached_property
    def tree(self) -> dict[str, Any]:
        tree: dict[str, Any] = plain(self.root)
        return tree

    @cached_property
    def origins(self) -> Mapping[KeyPath, Origin]:
        """The origin of every key, by its path: of the leaves (a list is a leaf) and of the maps above them."""
        return MappingProxyType(dict(_walk_origins((), self.root)))

    def origin(self, path: Sequence[str]) -> Origin | None:
        """Where `path` was written; for a key that nobody wrote, where the nearest map above it was."""
        node, found = self.root, None
        for key in path:
            if not isinstance(node.value, dict) or key not in node.value:
                break
            node = node.value[key]
            found = node.origin
        return found

    def leaves(self) -> Iterator[tuple[KeyPath, Any, Origin]]:
        """Every leaf in the order of the files: its path, its value, its origin. An empty map is a leaf."""
        return _walk_leaves((), self.root)


def plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    return node.value


def _walk_origins(path: KeyPath, node: Node) -> Iterator[tuple[KeyPath, Origin]]:
    if path:
        yield path, node.origin
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            yield from _walk_origins((*path, key), child)


def _walk_leaves(path: KeyPath, node: Node) -> Iterator[tuple[KeyPath, Any, Origin]]:
    if isinstance(node.value, dict) and (node.value or not path):
        for key, child in node.value.items():
            yield from _walk_leaves((*path, key), child)
    else:
        yield path, plain(node), node.origin


def merge(first: Values, second: Values) -> Values:
    """Two of the user's layers: `second` wins, nulls stay."""
    return Values(merge_nodes(first.root, second.root))


def merge_nodes(a: Node, b: Node) -> Node:
    """Helm's MergeMaps."""
    out = dict(a.value)
    for key, node in b.value.items():
        old = out.get(key)
        if old is not None and isinstance(old.value, dict) and isinstance(node.value, dict):
            out[key] = merge_nodes(old, node)
        else:
            out[key] = node
    return Node(out, b.origin)


def with_defaults(user: Values, defaults: Values) -> Values:
    """The effective values: the user's over a chart's defaults, as Helm coalesces them.

    A user's null removes the default of that key (and stays where there is no default); maps are filled up from
    the defaults' maps; anything else of the user's replaces the default. Defaults hold no null: Helm 3 and 4
    disagree about those.
    """
    return Values(_coalesce(user.root, defaults.root))


def _coalesce(user: Node, defaults: Node) -> Node:
    out = {}
    for key, node in user.value.items():
        default = defaults.value.get(key)
        if default is not None and node.value is None:
            continue
        if default is not None and isinstance(node.value, dict) and isinstance(default.value, dict):
            out[key] = _coalesce(node, default)
        else:
            out[key] = node
    for key, default in defaults.value.items():
        if key not in user.value:
            out[key] = default
    return Node(out, user.origin)


def set_value(values: Values, path: Sequence[str], value: Any, origin: Origin) -> Values:
    """The same values with `value` (plain data) at `path`; maps on the way are made where there are none."""

    def put(node: Node | None, rest: Sequence[str]) -> Node:
        if not rest:
            return from_plain(value, origin)
        children = dict(node.value) if node is not None and isinstance(node.value, dict) else {}
        children[rest[0]] = put(children.get(rest[0]), rest[1:])
        return Node(children, node.origin if node is not None else origin)

    return Values(put(values.root, path))


def from_plain(value: Any, origin: Origin) -> Node:
    if isinstance(value, dict):
        return Node({key: from_plain(child, origin) for key, child in value.items()}, origin)
    return Node(value, origin)


def dotted(path: Iterable[str]) -> str:
    """A path as people write it: run.name; a key with a dot in it is quoted."""
    return ".".join(f'"{part}"' if "." in part or not part else part for part in path)
