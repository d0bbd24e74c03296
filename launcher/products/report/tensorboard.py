"""TensorBoard on this machine, for the folders of runs."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from launcher import distribution
from launcher.backends.base import RunStatus
from launcher.errors import LauncherError


@contextlib.contextmanager
def serving(runs: Sequence[RunStatus], port: int = 0) -> Iterator[str]:
    """Serve TensorBoard for the runs, and yield its URL. The port 0 selects a free port.

    Raises LauncherError if no run has TensorBoard files, if they are not on this machine, or if TensorBoard is not
    installed.
    """
    for status in runs:
        if status.in_cluster:
            raise LauncherError(f'The run "{status.name}" is on a cluster: {_needed(_logdir(status))}')
    if find_spec("tensorboard") is None:
        raise LauncherError(
            "TensorBoard is not installed in this Python.",
            f"Install it next to the launcher: {distribution.install('train')}",
        )
    if not any(Path(_logdir(status)).is_dir() for status in runs):
        raise LauncherError(
            f'The run "{runs[0].name}" has written nothing for TensorBoard: {_logdir(runs[0])} does not exist.',
            "A training writes it with its first step, unless train.enable_tensorboard is false.",
        )
    with _one_folder(runs) as folder:
        program: Any = importlib.import_module("tensorboard.program")
        board = program.TensorBoard()
        board.configure(argv=["tensorboard", "--logdir", folder, "--host", "127.0.0.1", "--port", str(port)])
        try:
            url = board.launch()
        except program.TensorBoardServerException as error:
            raise LauncherError(f"TensorBoard cannot start: {error}", "Without --port, a free port is used.") from error
        yield str(url)


def _logdir(status: RunStatus) -> str:
    return f"{status.folder}/tensorboard"


@contextlib.contextmanager
def _one_folder(runs: Sequence[RunStatus]) -> Iterator[str]:
    """Yield the folder of a single run, or a folder with a link to that of each run, whose name TensorBoard shows."""
    if len(runs) == 1:
        yield _logdir(runs[0])
        return
    with tempfile.TemporaryDirectory(prefix="slipway-tensorboard-") as folder:
        for status in runs:
            Path(folder, status.name).symlink_to(_logdir(status))  # which a waiting run has not written yet
        yield folder


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
