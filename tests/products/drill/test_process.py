"""The command that kills the process that trains in a pod. Here it runs without a container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from launcher.products.drill.cluster import process

# As trainer/prepared.py: the parent forks, and waits for the process that trains.
PARENT = """
import os, time
if not (child := os.fork()):
    time.sleep(600)
print(child, flush=True)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_the_newest_process_is_killed_and_its_parent_stays(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/__init__.py").touch()
    (tmp_path / "trainer/__main__.py").write_text(PARENT)
    argv = [sys.executable, "-m", "trainer", "--config", str(tmp_path)]
    # With the folder, the pattern is only that of this test.
    _, *command = process.command(f"-m trainer --config {tmp_path}")
    with subprocess.Popen(argv, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) > parent.pid
        subprocess.run([sys.executable, *command], check=True)
        assert parent.stdout.readline() == b"-9\n"
        assert parent.wait(10) == 0
    missing = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stderr) == (1, f'it has no process "-m trainer --config {tmp_path}"\n')
