"""The memory of an export and an import, with the shapes of Llama 3.1 8B."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from tests.prerequisites import require
from tests.trainer import large_checkpoint

GIGABYTE = 10**9


def test_an_export_and_an_import_need_at_most_twice_the_largest_array(tmp_path: Path) -> None:
    require(shutil.disk_usage(tmp_path).free > 25 * GIGABYTE, "The files of the test need 20 GB of disk.")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    config, largest = large_checkpoint.write(tmp_path, layers=2)
    allowed = 2 * largest + GIGABYTE
    assert before < allowed  # a child of an earlier test would hide the export's
    _, peak = large_checkpoint.export(config, tmp_path / "exported")
    assert peak < allowed, f"{peak / GIGABYTE:.2f} GB, allowed {allowed / GIGABYTE:.2f} GB"
    shutil.rmtree(tmp_path / "large")
    subprocess.run(
        [
            *(sys.executable, "-m", "trainer.weights", "import", "--config", config),
            *("--from", tmp_path / "exported", "--to", tmp_path / "back"),
        ],
        cwd=large_checkpoint.CHECKOUT,
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    assert peak < allowed, f"{peak / GIGABYTE:.2f} GB, allowed {allowed / GIGABYTE:.2f} GB"
    shutil.rmtree(tmp_path)
