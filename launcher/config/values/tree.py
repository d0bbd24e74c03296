"""A tree of values with the file and line of every key, and Helm's rules for merging two trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

KeyPath = tuple[str, ...]
SET = "--set"
SWEEP = "--sweep"
"""The file names in the origins of `--set` and `--sweep` values; the line is the option's number, from 1."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a value: the file as the user named it, and the line of its key, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        if self.file.startswith("--"):  # an option: --set and --sweep are numbered, --name occurs once
            return f"{self.file} {self.line}" if self.file in (SET, SWEEP) else self.file
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its origin: `value` is a dict of nodes for a map, otherwise plain data (a list is one value)."""

    value: Any
    origin: Origin


class Values:
    """A tree of values with the origin of each value. Immutable: adding a layer returns a new tree.

    `tree` is plain data: dict, list, str, bool, int, float, None. Numbers are float64, as in Helm; those without a
    fraction are ints here (as in the JSON that Helm writes).
    """

    def __init__(self, root: Node, maps: Iterable[KeyPath] = ()) -> None:
        self.root = root
        self.maps = tuple(maps)
        """The maps of a chart in which a null removes an entry; "*" is any key. Only its defaults have them."""

    @classmethod
    def empty(cls, file: str = "") -> Values:
        """Return a tree without keys."""
        return cls(Node({}, Origin(file, 1)))

    @cached_property
    def tree(self) -> dict[str, Any]:
        tree: dict[str, Any] = plain(self.root)
        return tree

    @cached_property
    def origins(self) -> Mapping[KeyPath, Origin]:
        """The origin of every key by its path, for leaves (a list is a leaf) and the maps above them."""
        return MappingProxyType(dict(_walk_origins((), self.root)))

    def origin(self, path: Sequence[str]) -> Origin | None:
        """Return the origin of `path`; if no layer sets it, the origin of the nearest map above it."""
        node, origin = self.root, None
        for key in path:
            if not isinstance(node.value, dict) or key not in node.value:
                break
            node = node.value[key]
            origin = node.origin
        return origin

    def leaves(self) -> Iterator[tuple[KeyPath, Any, Origin]]:
        """Yield the path, value and origin of every leaf in file order. An empty map is a leaf."""
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
    """Merge two of the user's layers. `second` takes precedence; nulls are kept."""
    return Values(merge_nodes(first.root, second.root))


def merge_nodes(a: Node, b: Node) -> Node:
    """Merge two nodes as Helm's MergeMaps does."""
    out = dict(a.value)
    for key, node in b.value.items():
        old = out.get(key)
        if old is not None and isinstance(old.value, dict) and isinstance(node.value, dict):
            out[key] = merge_nodes(old, node)
        else:
            out[key] = node
    return Node(out, b.origin)


def with_defaults(user: Values, defaults: Values) -> Values:
    """Return the effective values: the user's values over a chart's defaults, as Helm coalesces them.

    A user's null removes the default of that key, and is kept if there is no default. An empty default stays, because
    the chart sets it again (but not `train`, and nothing of the library chart). Maps are completed from the defaults'
    maps. Any other user value replaces the default. Defaults contain no null, because Helm 3 and 4 treat it
    differently. Then the nulls in the chart's maps of entries are removed, as the chart does.
    """
    root = _coalesce(user.root, defaults.root)
    for path in defaults.maps:
        root = _without_nulls(root, path)
    return Values(root)


def _without_nulls(node: Node, path: KeyPath) -> Node:
    """Return the node without the entries that are null of the maps at `path`."""
    if not isinstance(node.value, dict):
        return node
    if not path:
        return Node({key: child for key, child in node.value.items() if child.value is not None}, node.origin)
    names = node.value if path[0] == "*" else [path[0]] * (path[0] in node.value)
    return Node({**node.value, **{key: _without_nulls(node.value[key], path[1:]) for key in names}}, node.origin)


def _coalesce(user: Node, defaults: Node, *, own: bool = True) -> Node:
    out = {}
    for key, node in user.value.items():
        default = defaults.value.get(key)
        if default is not None and node.value is None:
            if own and key != "train" and default.value in ("", [], {}):
                out[key] = Node(default.value, node.origin)
        elif default is not None and isinstance(node.value, dict) and isinstance(default.value, dict):
            out[key] = _coalesce(node, default, own=own and key != "common")
        else:
            out[key] = node
    for key, default in defaults.value.items():
        if key not in user.value:
            out[key] = default
    return Node(out, user.origin)


def set_value(values: Values, path: Sequence[str], value: Any, origin: Origin) -> Values:
    """Return the values with `value` (plain data) set at `path`. Missing maps along the path are created."""

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
    """Format a path as run.name; a key that contains a dot is quoted."""
    return ".".join(f'"{part}"' if "." in part or not part else part for part in path)
