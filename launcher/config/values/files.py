"""Load the user's values from files and `--set`, merged by Helm's own rule."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from launcher.config.values.assignment import assign
from launcher.config.values.reader import MAX_BYTES
from launcher.config.values.reader import read_text as read_text
from launcher.config.values.tree import SET, KeyPath, Node, merge_nodes
from launcher.config.values.tree import Origin as Origin
from launcher.config.values.tree import Values as Values
from launcher.config.values.tree import dotted as dotted
from launcher.config.values.tree import merge as merge
from launcher.config.values.tree import set_value as set_value
from launcher.config.values.tree import with_defaults as with_defaults
from launcher.errors import LauncherError
from launcher.paths import charts_dir, find_values_file

# A team's null removes a limit that all teams have.
_NULL_IS_A_VALUE = [("teams", "*", key) for key in ("resourceQuota", "limitRange")]


def load(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], sets: Sequence[str] = ()) -> Values:
    """Return the user's own layers, merged as `helm -f A -f B --set …` does: maps merge, lists and scalars replace.

    A null is kept in the tree: it removes a chart's default later (`with_defaults`). `-` reads standard input. If a
    file does not exist, the preset of that name is used. Raises LauncherError with file and line.
    """
    if isinstance(files, (str, os.PathLike)):  # api.plan("quickstart")
        files = [files]
    if isinstance(sets, str):
        raise LauncherError(f'Assignments are a list, such as ["train.steps=20"], but these are {sets!r}.')
    root = Values.empty().root
    for name in files:
        root = merge_nodes(root, read_file(os.fspath(name)).root)
    for number, text in enumerate(sets, start=1):
        root = assign(root, text, Origin(SET, number))
    return Values(root)


def read_file(name: str) -> Values:
    """Read one values file. Raises LauncherError for anything that Helm would reject or silently drop."""
    if name.strip() == "-":
        return read_text(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
    path = find_values_file(name)
    if path.is_dir():
        raise LauncherError(f'"{path}" is a folder, but -f requires a values file.')
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # a device has no end
    except OSError as error:
        raise LauncherError(f'The values file "{path}" cannot be read: {error.strerror}.') from error
    return read_text(data, str(path))


def chart_defaults(chart: str) -> Values:
    """Return the defaults of one of Slipway's charts, with the library chart's under `common`, as Helm sees them."""
    folder = charts_dir()
    own = read_file(str(folder / chart / "values.yaml"))
    common = read_file(str(folder / "common" / "values.yaml"))
    tree = merge(own, Values(Node({"common": common.root}, own.root.origin)))
    maps = [*entry_maps(chart), *(("common", *path) for path in entry_maps("common"))]
    return Values(tree.root, maps)


@cache
def entry_maps(chart: str) -> Sequence[KeyPath]:
    """Return the maps of a chart in which null removes an entry: those whose schema accepts null for every entry.

    Also the entries of maps, and the maps in them, with keys that can be null: an overlay unsets such a key.
    """
    schema = json.loads((charts_dir() / chart / "values.schema.json").read_text(encoding="utf-8"))
    return [path for path in _nullable((), schema) if path not in _NULL_IS_A_VALUE]


def _nullable(path: KeyPath, schema: Mapping[str, Any]) -> Iterator[KeyPath]:
    entries = schema.get("additionalProperties")
    if isinstance(entries, dict):
        if "null" in entries.get("type", ()):
            yield path
        yield from _nullable((*path, "*"), entries)
    keys = schema.get("properties", {})
    if "*" in path and any("null" in child.get("type", ()) for child in keys.values()):
        yield path
    for key, child in keys.items():
        yield from _nullable((*path, key), child)
