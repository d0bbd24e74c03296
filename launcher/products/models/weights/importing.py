"""Import a model in Hugging Face's format as weights that a run can start from, on this machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.errors import LauncherError, UsageError
from launcher.products.common.storage import is_url
from launcher.products.models.weights import hub
from launcher.products.models.weights.convert import convert


@dataclass(frozen=True)
class Imported:
    """Weights that were imported. `to` is the folder, the value of `from` for a run that starts from them.

    `state` is "imported", or "present" if the same import already existed. `bytes` is the size of the weights. `train`
    has the keys that select the model, if the values of the import have none: a run that starts from them needs these.
    """

    source: str
    to: str
    state: str
    dtype: str
    family: str
    parameters: int | None
    bytes: int | None
    train: Mapping[str, Any]


def check_source(source: str) -> None:
    """Raise UsageError if `source` is neither a path nor hf:ORG/NAME."""
    if source.startswith(hub.PREFIX):
        hub.repository(source)
    elif is_url(source):
        raise UsageError(f"{source} is a URL; give a folder or hf:ORG/NAME.")


def here(source: str, to: str, config: Mapping[str, Any], say: Callable[[str], None]) -> Imported:
    """Convert the model to the folder `to`, for runs with this run config. Raises LauncherError if it fails."""
    if is_url(to) or to.startswith(hub.PREFIX):
        raise LauncherError(
            f"--to {to} is not a folder of this machine, to which this import writes.",
            "With the values of a run in a cluster (-f), a run there imports the model into its storage.",
        )
    origin = source if source.startswith(hub.PREFIX) else str(Path(source).expanduser().resolve())
    with tempfile.TemporaryDirectory(prefix="slipway-import-") as temporary:
        file = Path(temporary, "run.json")
        file.write_text(json.dumps(config), encoding="utf-8")
        arguments = ["import", "--config", str(file), "--from", origin, "--to", str(Path(to).expanduser().resolve())]
        summary = convert(arguments, say)
    return Imported(
        source,
        str(summary["to"]),
        str(summary["state"]),
        str(summary["dtype"]),
        str(summary["family"]),
        summary.get("parameters"),
        summary.get("bytes"),
        summary.get("train") or {},
    )
