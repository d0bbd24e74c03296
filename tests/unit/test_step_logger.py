"""TensorBoard's file on a full storage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import resource, sys
from tensorboardX import SummaryWriter
from trainer.training.step_logger import survive_storage_errors

writer = SummaryWriter(sys.argv[1])
survive_storage_errors(writer)
resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, resource.RLIM_INFINITY))
for step in range(5000):  # 300 kB, in a queue of 10 events
    writer.add_scalar("learning/loss", 1.0, step)
writer.flush()
writer.close()
print("trained")
"""


def test_a_full_storage_does_not_stop_the_training(tmp_path: Path) -> None:
    """The thread of tensorboardX would end at the first error, and the training would wait for it."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    message = "TensorBoard's file cannot be written: [Errno 27] File too large. The training continues without it."
    assert (done.stdout.splitlines(), done.returncode) == ([message, "trained"], 0), done.stderr
