"""`python -m tests.e2e.fakes [COMMAND…]`: start a cluster with fake controllers, and run a command with its KUBECONFIG.

Without a command, it prints the kubeconfig's path and runs until Ctrl-C. With the command `python -m tests.e2e`, it
tests the suite: whether it waits, cleans up and ends correctly. The results show nothing about Kueue, JobSet or
KubeRay.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.cluster.control_plane import ControlPlane
from tests.e2e.fakes.cluster import controllers

SETTINGS = {"SLIPWAY_E2E_IMAGE": "example.invalid/trainer:1.0.0"}


def main(command: list[str]) -> int:
    with ControlPlane.start(with_crds=True) as plane, controllers(plane):
        print(plane.admin, flush=True)
        if not command:
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
            return 0
        environment = {**os.environ, "KUBECONFIG": str(plane.admin), **SETTINGS}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
