"""TensorBoard on this machine, for the folder of a run."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from launcher import distribution
from launcher.backends.base import RunStatus
from launcher.errors import LauncherError


@contextlib.contextmanager
def serving(status: RunStatus, port: int = 0) -> Iterator[str]:
    """Serve TensorBoard for the run, and yield its URL. The port 0 selects a free port.

    Raises LauncherError if the run has no TensorBoard files, if they are not on this machine, or if TensorBoard is not
    installed.
    """
    logdir = f"{status.folder}/tensorboard"
    if status.in_cluster:
        raise LauncherError(f'The run "{status.name}" is on a cluster: {_needed(logdir)}')
    if find_spec("tensorboard") is None:
        raise LauncherError(
            "TensorBoard is not installed in this Python.",
            f"Install it next to the launcher: {distribution.install('train')}",
        )
    if not Path(logdir).is_dir():
        raise LauncherError(
            f'The run "{status.name}" has written nothing for TensorBoard: {logdir} does not exist.',
            "A training writes it with its first step, unless train.enable_tensorboard is false.",
        )
    program: Any = importlib.import_module("tensorboard.program")
    board = program.TensorBoard()
    board.configure(argv=["tensorboard", "--logdir", logdir, "--host", "127.0.0.1", "--port", str(port)])
    try:
        url = board.launch()
    except program.TensorBoardServerException as error:
        raise LauncherError(f"TensorBoard cannot start: {error}", "Without --port, a free port is used.") from error
    yield str(url)


def _needed(logdir: str) -> str:
    if "://" in logdir:
        return (
            f"its files are in {logdir}. With TensorBoard, the package gcsfs and credentials for the bucket on this "
            f"machine: python -m tensorboard.main --logdir {logdir}"
        )
    return (
        f"its files are in {logdir}, in the volume of its pods. Copy that folder to this machine, then: "
        "python -m tensorboard.main --logdir FOLDER"
    )
