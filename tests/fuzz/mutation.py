"""Mutations of JSON trees: seeded, small as text, and minimizable.

Every input is a JSON tree: an object of a cluster, a record.json, or a list of lines. A case is the name of its base
and a few edits of it, so that a find is a few lines of JSON. Hypothesis generates trees from a schema and cannot start
from recorded ones, so it is not used here.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

Place = tuple[str | int, ...]

_REMOVED = "$removed"

MARKER = "<img src=x onerror=fuzz()>"
"""HTML that no page may contain unescaped."""
HOSTILE: Mapping[str, tuple[Any, ...]] = {
    key: tuple(values)
    for key, values in json.loads(Path(__file__).with_name("hostile.json").read_text(encoding="utf-8")).items()
}
"""Expressions (see Edit): `texts` and other `values` for any place, `lines` of a log, a valid `log`, and `yaml`."""


@dataclass(frozen=True)
class Edit:
    """Sets the value at `at`, a path whose first part names the document; or removes it.

    `to` is an expression: JSON, in which {"$repeat": [V, N]} is text or a list N times, {"$nest": N} N nested lists,
    {"$keys": N} a map with N keys, {"$power": N} 10 to the power N, {"$join": [text…]} the concatenation of texts, and
    {"$each": [text, N]} the concatenation of N texts in which {n} is the number of each, and {m} that before it.
    """

    at: Place
    to: Any

    def as_json(self) -> Any:
        return {"at": list(self.at), "to": self.to}

    @classmethod
    def of(cls, data: Any) -> Edit:
        return cls(tuple(data["at"]), data["to"])


def remove(at: Place) -> Edit:
    return Edit(at, {_REMOVED: True})


def expand(to: Any) -> Any:
    """Return the value of an expression of an Edit."""
    match to:
        case {"$repeat": [value, count]}:
            return expand(value) * count
        case {"$nest": count}:
            nested: Any = []
            for _ in range(count):
                nested = [nested]
            return nested
        case {"$keys": count}:
            return {f"key{number}": number for number in range(count)}
        case {"$power": power}:
            return 10**power
        case {"$each": [text, count]}:
            return "".join(text.replace("{n}", str(n)).replace("{m}", str(n - 1)) for n in range(1, count + 1))
        case {"$join": parts}:
            return "".join(expand(part) for part in parts)
        case dict():
            return {key: expand(value) for key, value in to.items()}
        case list():
            return [expand(value) for value in to]
    return to


def apply(documents: dict[str, Any], edits: list[Edit]) -> dict[str, Any]:
    """Return a copy of the documents with the edits. An edit whose path does not exist any more has no effect."""
    made: dict[str, Any] = dict(documents)
    for name in {edit.at[0] for edit in edits if edit.at}:
        if name in made:
            made[str(name)] = copy.deepcopy(made[str(name)])
    for edit in edits:
        _apply(made, edit)
    return made


def _apply(tree: Any, edit: Edit) -> None:
    last: Any = edit.at[-1]
    try:
        for part in edit.at[:-1]:
            tree = tree[part]
        if isinstance(edit.to, dict) and _REMOVED in edit.to:
            del tree[last]
        elif isinstance(tree, list) and last == len(tree):
            tree.append(expand(edit.to))
        elif isinstance(tree, dict | list):
            tree[last] = expand(edit.to)
    except (KeyError, IndexError, TypeError):
        pass


def at(tree: Any, path: Place) -> Any:
    for part in path:
        tree = tree[part]
    return tree


class Mutator:
    """Draws edits of documents from a seeded source of random numbers. `texts` are added to the hostile texts."""

    def __init__(self, random: Random, texts: tuple[Any, ...] = ()) -> None:
        self.random = random
        self._texts = (*HOSTILE["texts"], *texts)

    def edits(self, documents: dict[str, Any], most: int = 4) -> list[Edit]:
        """Return one to `most` edits; usually one."""
        count = self.random.choice([1, 1, 1, 2, 2, 3, most])
        return [self._edit(documents) for _ in range(count)]

    def value(self) -> Any:
        """Return the expression of a hostile value."""
        return self.random.choice(self._texts if self.random.random() < 0.5 else HOSTILE["values"])

    def _edit(self, documents: dict[str, Any]) -> Edit:
        name = self.random.choice([*documents])
        path = self._path(documents[name])
        old = at(documents[name], path)
        where: Place = (name, *path)
        match self.random.randrange(8):
            case 0 | 1:
                return remove(where) if path else Edit(where, self.value())
            case 2 if isinstance(old, str):
                parts = [old, self.random.choice(self._texts)]
                self.random.shuffle(parts)
                return Edit(where, {"$join": parts})
            case 3 if isinstance(old, list) and old:
                return Edit(where, {"$repeat": [[self.random.choice(old)], self.random.choice([2, 50, 3000])]})
            case 4 if isinstance(old, dict):
                return Edit((*where, self.random.choice(self._texts) or "new"), self.value())
            case 4 if isinstance(old, list):
                return Edit((*where, len(old)), self.value())
            case 5 | 6:  # the value of another place, preferably of the same type
                for _ in range(10):
                    other = documents[self.random.choice([*documents])]
                    found = at(other, self._path(other))
                    if type(found) is type(old) and found != old:
                        break
                return Edit(where, found)
        return Edit(where, self.value())

    def _path(self, tree: Any) -> Place:
        """Return a random path: a random depth first, since most nodes are deep."""
        path: Place = ()
        while isinstance(tree, dict | list) and tree:
            keys = list(tree) if isinstance(tree, dict) else range(len(tree))
            key = self.random.choice(keys)
            path, tree = (*path, key), tree[key]
            if self.random.random() < 0.2:
                break
        return path


def minimized(edits: list[Edit], fails: Callable[[list[Edit]], bool]) -> list[Edit]:
    """Return fewer and simpler edits for which `fails` is still true."""
    for edit in list(edits):
        fewer = [other for other in edits if other is not edit]
        if fewer and fails(fewer):
            edits = fewer
    for number, edit in enumerate(edits):
        simplest: tuple[Any, ...] = (None, [], {}, 0, "x", {_REMOVED: True})
        for simple in simplest:
            simpler = [*edits[:number], Edit(edit.at, simple), *edits[number + 1 :]]
            if len(json.dumps(simple)) < len(json.dumps(edit.to)) and fails(simpler):
                edits = simpler
                break
    return edits
