"""The differences between the configs of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config.secrets import hide
from launcher.config.values.tree import KeyPath, dotted
from launcher.report.model import RunData

NOT_SET = "(not set)"
# Keys that follow from other keys, or differ between any two runs.
_LEFT_OUT = {("run", "name"), ("storage", "mountPath")}


@dataclass(frozen=True)
class Difference:
    """A key, and its value in each run as JSON. `usual` is the most frequent value."""

    key: str
    values: Sequence[str]

    @property
    def usual(self) -> str:
        return max(self.values, key=self.values.count)


def differences(runs: Sequence[RunData]) -> list[Difference]:
    """Return the keys whose values differ between the runs with a known config."""
    trees = [dict(flat(run.config)) for run in runs if run.config]
    keys = dict.fromkeys(path for tree in trees for path in tree)
    found = []
    for path in keys:
        if path in _LEFT_OUT or path[0] == "accelerator":
            continue
        values = [as_text(tree[path]) if path in tree else NOT_SET for tree in trees]
        if len(set(values)) > 1:
            found.append(Difference(dotted(path), values))
    # The train keys first, then the rest in the order of the files.
    return sorted(found, key=lambda one: not one.key.startswith("train."))


def flat(tree: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every key that holds a value, with the value. A list is one value. An empty map yields nothing.

    Secrets are hidden: a report is passed on to other people.
    """
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*path, key))
        else:
            yield (*path, key), hide((*path, key), value)


def as_text(value: Any) -> str:
    import json

    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
