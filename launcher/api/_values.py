"""The arguments `files` and `sets` of the API, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from launcher.config.values.tree import SET, Origin, Values

if TYPE_CHECKING:
    from launcher.config.values.tree import Values

type Files = str | PathLike[str] | Sequence[str | PathLike[str]]
"""Values files or names of presets; one of them needs no list."""
type Sets = Sequence[str] | Mapping[str, Any]
"""Assignments, as --set accepts them, or a mapping of keys to values: {"train.steps": 20}."""


def load(files: Files, sets: Sets) -> Values:
    """Return the values files and `sets` merged as Helm does, not validated."""
    from launcher.config.values import assignment
    from launcher.config.values import files as values_files

    if not isinstance(sets, Mapping):
        return values_files.load(files, sets)
    root = values_files.load(files).root
    for number, (key, value) in enumerate(sets.items(), start=1):
        axis = assignment.read_sweep(f"{key}=null", Origin(SET, number))
        root = assignment.put(root, axis, assignment.of_python(value))
    return Values(root)
