"""Show the examples of a fine-tuning before a run starts."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launcher import api
from launcher.api._values import Files, Sets
from launcher.backends.local.record import write_json
from launcher.errors import LauncherError
from launcher.products.models.inference import child


@dataclass(frozen=True)
class Example:
    """An example as the trainer reads it.

    `parts` are its texts in turn, each with whether the loss counts it. `tokens` and `counted` are numbers of tokens;
    `cut` is the number of tokens above the length of a sequence.
    """

    place: str
    parts: Sequence[tuple[str, bool]]
    tokens: int
    counted: int
    cut: int


@dataclass(frozen=True)
class Preview:
    """The first examples, and numbers of the examples that were read.

    `read` is their number, and `complete` is true if there are no others. `tokens`, `counted` and `longest` are
    numbers of tokens: of those that are trained on, of those that the loss counts, and of the longest example. `cut`
    and `dropped` are the numbers of examples above `length`, the tokens of a sequence. `left_out` is a sentence about
    texts that the chat template does not write, or "". `sequences` is about how many sequences the examples fill.
    """

    examples: Sequence[Example]
    read: int
    complete: bool
    tokens: int
    counted: int
    longest: int
    cut: int
    dropped: int
    left_out: str
    length: int
    sequences: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def preview_data(files: Files, sets: Sets = (), *, count: int = 3) -> Preview:
    """Read the examples that the values name on this machine, and return the first `count` of them, with numbers.

    Raises launcher.config.plan.CheckFailed if a rule is violated, and LauncherError with the file and line of a row
    that is not an example.
    """
    config = api.plan(files, sets, name="data-preview").config  # the verb has no --name, and needs no name
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        path = Path(folder, "run.json")
        write_json(path, config)
        try:
            *_, line = child.lines("trainer.tuning.preview", ["--config", str(path), "--count", str(count)])
        except LauncherError as error:
            if config["run"]["kind"] != "local" and "does not exist;" in error.message:
                raise LauncherError(
                    error.message,
                    "The preview reads files of this machine: copy some of it, and add --set data.files='[FILE]'.",
                ) from error
            raise
    data = json.loads(line)
    examples = data.pop("examples")
    return Preview(
        [Example(**{**each, "parts": [(text, counts) for text, counts in each["parts"]]}) for each in examples], **data
    )
