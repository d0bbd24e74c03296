"""A host's preStop hook (trainer/prestop.py) if Ray's control plane ends before the host, as at the end of a run.

A fake process with the command line of a raylet replaces the raylet, because a real one ends with its control plane.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
RAYLET = "import sys, time; print(flush=True); time.sleep(120)"
# It runs as long as Ray's command waits for a control plane that does not answer.
RAY = "#!/bin/sh\nexec sleep 60\n"


def test_a_host_with_nothing_to_train_does_not_wait_for_a_lost_head(tmp_path: Path) -> None:
    (tmp_path / "ray").write_text(RAY)
    (tmp_path / "ray").chmod(0o755)
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        head.listen()
        address = ":".join(map(str, head.getsockname()))
        node = ["raylet", "-c", RAYLET, "--node_id=0a0b", f"--gcs-address={address}"]
        raylet = subprocess.Popen(node, executable=sys.executable, stdout=subprocess.PIPE)
        hook = None
        try:
            assert raylet.stdout is not None and raylet.stdout.readline()
            hook = subprocess.Popen(
                [sys.executable, "-m", "trainer.prestop", "--seconds", "120", "--node-id", "0a0b"],
                env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
                cwd=CHECKOUT,
            )
            time.sleep(3)
            assert hook.poll() is None  # the hook waits while the control plane exists
            head.close()
            assert hook.wait(10) == 0
        finally:
            for process in filter(None, (raylet, hook)):
                process.kill()
                process.wait()
            assert raylet.stdout is not None
            raylet.stdout.close()
