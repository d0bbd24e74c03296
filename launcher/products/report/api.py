"""Report runs: as an HTML page, and in TensorBoard."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from launcher.backends.selection import select
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.report.build import Report, build
from launcher.products.report.tensorboard import serving


def report(
    names: Sequence[str],
    *,
    target: Target = DEFAULT_TARGET,
    skip: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Return a report that compares runs: an HTML page, and the first table of the page as data.

    A name is that of a run or a sweep, a run's folder (with a slash in it), or the URL of such a folder in a bucket.
    Raises LauncherError if one of them cannot be read; with `skip`, it is listed in `left_out` instead. `say` is called
    with a sentence if a run was not read from its folder.
    """
    return build(names, target=target, skip=skip, say=say)


def tensorboard(*names: str, port: int = 0, target: Target = DEFAULT_TARGET) -> contextlib.AbstractContextManager[str]:
    """Serve TensorBoard for runs and sweeps of this machine on a local port (0: a free port) while the context lasts.

        with api.tensorboard("first") as url:
            input(url)

    Raises LauncherError if TensorBoard is not installed, or no run has files for it on this machine.
    """
    return serving([run for _, run in select(names, target)], port)
