"""Export a checkpoint as a model in Hugging Face's format: on this machine, or by a run in the cluster."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher import paths
from launcher.backends.local.record import CONFIG
from launcher.config.maxtext import models
from launcher.errors import LauncherError, UsageError
from launcher.products.common.storage import is_url, refuse_existing, write_bucket
from launcher.products.models.weights import checkpoints, hub
from launcher.products.models.weights.checkpoints import Checkpoint, Checkpoints
from launcher.products.models.weights.convert import convert

DTYPES = ("float32", "bfloat16")
CONFIG_JSON = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
"""The file of a model, or of an adapter, without which no program loads it; it is uploaded last."""
_DRAFT = ".export-"


@dataclass(frozen=True)
class Exported:
    """A model that was exported.

    `name` is the run, `step` the number of its checkpoint, and `to` the destination: a folder, the URL of a folder in a
    bucket, or hf:ORG/NAME. `state` is "exported", or "present" if the same export already existed. `bytes` is the size
    of the weights.
    """

    name: str
    step: int
    to: str
    state: str
    dtype: str
    family: str
    parameters: int | None
    bytes: int | None


def has_adapters(config: Mapping[str, Any]) -> bool:
    """Return whether the checkpoints of the run with this config have adapters only."""
    return bool(models.adapter(config.get("tuning")))


def check_destination(to: str) -> None:
    """Raise UsageError if `to` is neither a path, the URL of a folder in a bucket, nor hf:ORG/NAME."""
    if not to.strip():
        raise UsageError('--to "" is not a destination; give a folder, gs://BUCKET/FOLDER or hf:ORG/NAME.')
    if to.startswith(hub.PREFIX):
        hub.repository(to)
    elif is_url(to) and not to.partition("://")[2].strip("/").partition("/")[2]:
        raise UsageError(f"--to {to} is not a folder in a bucket; write gs://BUCKET/FOLDER.")


def of_folder(
    folder: Path,
    to: str,
    *,
    step: str,
    dtype: str,
    merge: bool,
    public: bool,
    say: Callable[[str], None],
    name: str = "",
) -> Exported:
    """Export a checkpoint of the run in a folder of this machine. Raises LauncherError with the reason if it fails."""
    listed = checkpoints.of_folder(name or folder.name, folder)
    chosen = listed.select(step)
    if not (folder / CONFIG).is_file():
        raise LauncherError(f"{folder} has no {CONFIG}, the config of the run, which an export requires.")
    say(f"Exporting the checkpoint {chosen.step} (after {checkpoints.after(chosen.step)}) of {listed.name} to {to}.")
    if to.startswith(hub.PREFIX):
        hub.check(to, public=public)
        with _draft(listed, chosen) as draft:
            summary = _converted(folder, listed, chosen, draft, dtype, merge, say)
            hub.upload(draft, to, private=not public, say=say)
    elif is_url(to):
        url = to.rstrip("/")
        refuse_existing(url, CONFIG_JSON)
        refuse_existing(url, ADAPTER_CONFIG)
        with _draft(listed, chosen) as draft:
            summary = _converted(folder, listed, chosen, draft, dtype, merge, say)
            write_bucket(url, draft, _in_order(draft), say)
    else:
        summary = _converted(folder, listed, chosen, Path(to).expanduser().absolute(), dtype, merge, say)
    return Exported(
        listed.name,
        chosen.step,
        str(summary["to"]) if not (is_url(to) or to.startswith(hub.PREFIX)) else to,
        str(summary.get("state") or "exported"),
        dtype,
        str(summary.get("family") or ""),
        summary.get("parameters"),
        summary.get("bytes"),
    )


def _converted(
    folder: Path, listed: Checkpoints, chosen: Checkpoint, to: Path, dtype: str, merge: bool, say: Callable[[str], None]
) -> dict[str, Any]:
    """Convert the checkpoint. A copy of a folder from a cluster has a config that names the folder in the pods."""
    arguments = ["export", "--config", str(folder / CONFIG), "--checkpoint", listed.folder]
    arguments += ["--step", str(chosen.step), "--to", str(to), "--dtype", dtype]
    arguments += ["--merge"] if merge else []
    with tempfile.TemporaryDirectory(prefix="slipway-export-") as temporary:
        facts = Path(temporary, "facts.json")
        known = {} if chosen.eval_loss is None else {"heldOutLoss": chosen.eval_loss}
        facts.write_text(json.dumps(known), encoding="utf-8")
        return convert([*arguments, "--facts", str(facts)], say)


@contextmanager
def _draft(listed: Checkpoints, chosen: Checkpoint) -> Iterator[Path]:
    """Yield the path of a folder that is removed at the end. It is on the disk of the runs, which may be larger."""
    home = paths.home()
    home.mkdir(parents=True, exist_ok=True)
    for old in home.glob(f"{_DRAFT}*"):
        owner = old.name.removeprefix(_DRAFT).partition("-")[0]
        if owner.isdecimal() and not _is_alive(int(owner)):  # its export was killed
            shutil.rmtree(old, ignore_errors=True)
    above = Path(tempfile.mkdtemp(prefix=f"{_DRAFT}{os.getpid()}-", dir=home))
    try:
        yield above / f"{listed.name}-{chosen.step}"
    finally:
        shutil.rmtree(above, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_order(folder: Path) -> list[str]:
    """Return the names of the files of a model, with the file last that makes it loadable."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(names, key=lambda name: name in (CONFIG_JSON, ADAPTER_CONFIG))
