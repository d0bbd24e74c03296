"""The Hugging Face folder of a run's checkpoint: exported once into the run's folder, and used again."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer.config import RunConfig, read
from trainer.errors import ConfigError

FOLDER = "export"
"""The folder in a run's folder that has the exported checkpoints, by their step."""
COMPLETE = "slipway.json"
"""The file that trainer.weights writes into an exported folder. It moves the folder to its place when it is whole."""


def add_source(parser: Any) -> None:
    """Add the options that select the model."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=Path, metavar="DIR", help="a Hugging Face folder")
    source.add_argument("--config", type=Path, metavar="RUN.json", help="the config of a run, for a checkpoint of it")
    parser.add_argument("--step", type=int, metavar="N", help="with --config: the checkpoint (default: the last one)")


def model_folder(arguments: argparse.Namespace) -> Path:
    """Return the Hugging Face folder that the options select. A checkpoint of a run is exported first, if necessary.

    Raises ConfigError if there is no such checkpoint, or if it cannot be exported.
    """
    if arguments.model is not None:
        return Path(arguments.model).expanduser().absolute()
    config = read(arguments.config.absolute())
    step = arguments.step if arguments.step is not None else _last_step(config)
    target = config.folder / FOLDER / str(step)
    if not (target / COMPLETE).is_file():
        with _alone(target):
            if not (target / COMPLETE).is_file():  # another process may have exported it in the meantime
                _export(arguments.config.absolute(), step, target)
    return target


def _last_step(config: RunConfig) -> int:
    steps = [int(path.name) for path in (config.folder / "checkpoints").glob("*") if path.name.isdecimal()]
    if not steps:
        raise ConfigError(f"{config.name} has no checkpoints: {config.folder / 'checkpoints'} is empty.")
    return max(steps)


@contextlib.contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Wait until no other process of this machine exports the same checkpoint."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(target.parent / f".{target.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{target.parent} cannot be written to: {error.strerror}.") from error
    try:
        # A bucket that is mounted by gcsfuse has no locks. Two exports then write two folders, and one is kept.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _export(config: Path, step: int, target: Path) -> None:
    # A process of its own: JAX and the checkpoint need memory that the model needs afterwards.
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "trainer.weights", "export"),
            *("--config", str(config), "--step", str(step), "--to", str(target)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0:
        return
    printed = [line.removeprefix("Error: ") for line in done.stderr.splitlines() if line.startswith("Error: ")]
    if printed:
        raise ConfigError(printed[-1])
    raise RuntimeError(f"the export ended with exit code {done.returncode}:\n{done.stderr}")
