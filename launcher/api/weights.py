"""Checkpoints of runs as models: list, export and import them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.weights.checkpoints import Checkpoints


def checkpoints(name: str, *, target: Target = DEFAULT_TARGET) -> Checkpoints:
    """Return the checkpoints of a run, with their sizes, times and held-out losses.

    A name is that of a run, a run's folder (with a slash in it), or the URL of such a folder in a bucket. Raises
    LauncherError if the run does not exist, has no checkpoints, or its storage cannot be read.
    """
    from launcher.weights.checkpoints import read

    return read(name, target)
