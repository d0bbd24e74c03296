"""An input that others control, and how a command finds it."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

from launcher import api
from tests.fuzz import sandbox

Documents = dict[str, Any]
"""JSON trees by name: the objects, files and answers that a case may change."""

_RUN_VALUES = (["tutorials/llama3-8b-v6e-16"], ["storage.bucket=some-bucket", "image.repository=example.com/trainer"])


class Target:
    """An input that others control: its bases, its commands, and how it is put before the command."""

    texts: tuple[Any, ...] = ()

    def bases(self) -> list[str]:
        raise NotImplementedError

    def documents(self, base: str) -> Documents:
        raise NotImplementedError

    def arguments(self, base: str, random: Random) -> tuple[str, ...]:
        raise NotImplementedError

    def relevant(self, base: str, random: Random) -> Documents:
        """Return the documents that a mutation may change."""
        return self.documents(base)

    def env(self) -> dict[str, str]:
        """Return more environment variables of the command."""
        return {}

    def faults(self, arguments: tuple[str, ...], folder: Path, documents: Documents) -> list[str]:
        """Run the command in `folder`, in which `at` is; return what is wrong."""
        result = sandbox.call(arguments, folder, self.env())
        return list(sandbox.faults(arguments, folder, result, seconds=self.seconds(documents)))

    def seconds(self, documents: Documents) -> float:
        """Return the most processor time that a command may take."""
        return sandbox.SECONDS

    @contextmanager
    def at(self, folder: Path, documents: Documents) -> Iterator[None]:
        raise NotImplementedError
        yield


@functools.cache
def run_config(kind: str = "ray-job") -> dict[str, Any]:
    files, sets = _RUN_VALUES
    config = api.plan(files, [*sets, f"run.kind={kind}"], name="x").config
    return cast(dict[str, Any], json.loads(json.dumps(config)))
