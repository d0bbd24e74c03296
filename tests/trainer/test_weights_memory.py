"""The memory of an export and an import, with the shapes of Llama 3.1 8B."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.prerequisites import require
from tests.trainer import large_checkpoint

GIGABYTE = 10**9


def test_an_export_and_an_import_need_at_most_twice_the_largest_array(tmp_path: Path) -> None:
    require(shutil.disk_usage(tmp_path).free > 25 * GIGABYTE, "The files of the test need 20 GB of disk.")
    require(Path("/proc/self/status").is_file(), "The memory of a process is read from Linux.")
    config, largest = large_checkpoint.write(tmp_path, layers=2)
    allowed = 2 * largest + GIGABYTE
    _, peak = large_checkpoint.measure("export", "--config", config, "--to", tmp_path / "exported")
    assert largest < peak < allowed
    shutil.rmtree(tmp_path / "large")
    back = tmp_path / "back"
    _, peak = large_checkpoint.measure("import", "--config", config, "--from", tmp_path / "exported", "--to", back)
    assert largest < peak < allowed
    shutil.rmtree(tmp_path)
