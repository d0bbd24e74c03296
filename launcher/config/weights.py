"""The weights that a run starts from: the value of `from`, and the path that follows from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LAST, BEST = "last", "best"
"""The step in the path of a run without a step, and with @best: the trainer replaces it with a number."""

_ITEMS = re.compile(r"(/items)?/*\Z")


@dataclass(frozen=True)
class Source:
    """The value of `from`: the checkpoint `step` of the run `name`, or, with no name, imported weights at `path`.

    Without a step, it is that of the last step of a run that has ended; with BEST, that with the lowest held-out loss.
    """

    name: str = ""
    step: int | str | None = None
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Source:
        if "/" in text:
            return cls(path=_ITEMS.sub("", text, count=1))
        name, _, step = text.partition("@")
        return cls(name=name, step=int(step) if step.isdecimal() else step or None)

    def items(self, mount_path: str) -> str:
        """Return the folder that MaxText reads the weights from, for the folder of all runs."""
        if self.path:
            return f"{self.path}/items"
        step = LAST if self.step is None else self.step
        return f"{mount_path.rstrip('/')}/{self.name}/checkpoints/{step}/items"


def with_weights(tree: Mapping[str, Any], mount_path: str) -> dict[str, Any]:
    """Return `train` of a run config, with the path that follows from `from`.

    charts/run/templates/_helpers.tpl derives the same path.
    """
    train: dict[str, Any] = tree["train"]
    if not tree.get("from"):
        return train
    return {**train, "load_parameters_path": Source.parse(tree["from"]).items(mount_path)}
