"""python -m trainer.inference.exported: export a run's checkpoint into its folder, unless it already is there.

Programs that use the model call `model_folder`, which does the same.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer.config import read
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
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="with --config: the run's folder (default: the one in the config)"
    )


def model_folder(arguments: argparse.Namespace) -> Path:
    """Return the Hugging Face folder that the options select. A checkpoint of a run is exported first, if necessary.

    Raises ConfigError if there is no such checkpoint, or if it cannot be exported.
    """
    if arguments.model is not None:
        return Path(arguments.model).expanduser().absolute()
    saved = run_folder(arguments) / "checkpoints"
    step = arguments.step if arguments.step is not None else _last_step(saved)
    target = run_folder(arguments) / FOLDER / str(step)
    if not (target / COMPLETE).is_file():
        if not (saved / str(step)).is_dir():
            raise ConfigError(f"There is no checkpoint {step} in {saved}.")
        with _alone(target):
            if not (target / COMPLETE).is_file():  # another process may have exported it in the meantime
                _export(arguments.config.absolute(), saved, step, target)
    return target


def run_folder(arguments: argparse.Namespace) -> Path:
    """Return the folder of the run. Raises ConfigError if its config cannot be read."""
    config: Path = arguments.config.absolute()
    return Path(arguments.folder).absolute() if arguments.folder is not None else read(config).folder


def _last_step(saved: Path) -> int:
    steps = [int(path.name) for path in saved.glob("*") if path.name.isdecimal()]
    if not steps:
        raise ConfigError(f"There are no checkpoints in {saved}.")
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


def _export(config: Path, saved: Path, step: int, target: Path) -> None:
    # A process of its own: JAX and the checkpoint need memory that the model needs afterwards.
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "trainer.weights", "export", "--merge"),
            *("--config", str(config), "--checkpoint", str(saved), "--step", str(step), "--to", str(target)),
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
    if done.returncode == -signal.SIGKILL:
        raise ConfigError("The export was killed, most likely because this machine ran out of memory.")
    raise RuntimeError(f"the export ended with exit code {done.returncode}:\n{done.stderr}")


def main() -> int:
    """Return the exit code. 2: the checkpoint cannot be exported; stderr has the sentence."""
    parser = argparse.ArgumentParser(prog="python -m trainer.inference.exported", description=__doc__)
    add_source(parser)
    try:
        print(model_folder(parser.parse_args()))  # noqa: T201 - the result
    except ConfigError as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)  # noqa: T201 - the message
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
