"""The command and the environment of a run's processes on this machine. The environment is that of the shell, without
what selects another cluster.

This module imports only the standard library: the supervisor uses it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

# A shell may have these for a Ray cluster, for another program, or because it is in a pod. A run with them would
# connect to another cluster, or train on other devices or with other keys of MaxText (M_KEY) than its values have.
# RAY_TMPDIR is a folder of this machine.
_OTHERS = re.compile(
    r"(RAY|JAX|XLA|M)_(?!TMPDIR$).*"
    r"|SLIPWAY_(COORDINATOR|HOST_INDEX|HOSTS|RESTARTS_LEFT|EXIT_MESSAGE_FD)|JOB_INDEX|JOB_COMPLETION_INDEX"
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def own_environment(shell: Mapping[str, str], own: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the environment of a process of a run: `shell`, without variables of Ray, JAX and XLA, and with `own`,
    those of the run's values. Connections to this machine use no proxy: Ray's processes connect by gRPC, which would
    send even these to it."""
    env = {name: value for name, value in shell.items() if not _OTHERS.fullmatch(name)} | dict(own)
    direct = [host for name in ("no_proxy", "NO_PROXY") for host in env.get(name, "").split(",") if host.strip()]
    env["no_proxy"] = env["NO_PROXY"] = ",".join(dict.fromkeys([*map(str.strip, direct), *_LOOPBACK]))
    return env


def trainer_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that, added to `env`, make the `trainer` of a checkout that is not installed importable."""
    root = Path(__file__).resolve().parents[3]
    if root.name in ("site-packages", "dist-packages"):
        return {}
    return {"PYTHONPATH": os.pathsep.join([str(root), *filter(None, [env.get("PYTHONPATH")])])}


def trainer_argv(config_file: Path, *, ray: bool) -> list[str]:
    # -P: do not import a folder named trainer in the working directory.
    return [sys.executable, "-P", "-m", "trainer", "--config", str(config_file), *([] if ray else ["--no-ray"])]
