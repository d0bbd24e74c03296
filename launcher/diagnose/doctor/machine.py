"""Check this machine: Python, Slipway, Helm, and whether runs can train here."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.util import find_spec

from launcher import distribution
from launcher.diagnose.doctor.finding import MACHINE, Finding, Level, clause, join_words
from launcher.errors import LauncherError
from launcher.helm.client import Helm

# Modules that a run of kind local imports; the extra `train` installs them.
_TRAINING = ("ray", "maxtext", "jax")


def examine(*, cluster: bool) -> Iterator[Finding]:
    """Return findings on this machine. `cluster`: whether there is a cluster; without one, runs can only train here."""
    slipway = distribution.version() or "of a checkout that is not installed"
    yield Finding(MACHINE, Level.OK, "Python", f"{platform.python_version()}, Slipway {slipway}.")
    yield _helm(cluster=cluster)
    missing = [name for name in _TRAINING if find_spec(name) is None]
    if not missing:
        yield Finding(MACHINE, Level.OK, "training here", "Ray and MaxText are installed, so run.kind local works.")
    else:
        # Not a problem: a platform engineer never trains here, and may not have a kubeconfig yet.
        level = Level.OK if cluster else Level.WARNING
        says = f"not possible: {join_words(missing)} {'is' if len(missing) == 1 else 'are'} not installed."
        hint = f"For run.kind local: {distribution.install('train')}, or make setup in a checkout."
        yield Finding(MACHINE, level, "training here", says, hint)


def _helm(*, cluster: bool) -> Finding:
    """Check Helm, which renders objects for a cluster. It is not needed without a cluster."""

    try:
        helm = Helm()
        return Finding(MACHINE, Level.OK, "Helm", f"version {helm.major} ({helm.executable}).")
    except LauncherError as error:
        level = Level.PROBLEM if cluster else Level.WARNING
        return Finding(MACHINE, level, "Helm", clause(error.message), error.hint)
