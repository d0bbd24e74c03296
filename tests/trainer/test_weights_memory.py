"""The memory of an export and an import of a model that is much larger than its largest array."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.prerequisites import require
from tests.trainer import large_checkpoint

GIGABYTE = 10**9
# Embedding, output layer and the three kernels of the MLP have 270 MB each, and the model 1.3 GB.
LAYERS = 8
SIZES = {"base_emb_dim": 512, "base_mlp_dim": 16384, "base_num_query_heads": 4, "base_num_kv_heads": 2}
PROGRAM = 450_000_000
"""Bytes of memory for Python and its modules: 0.3 GB, and a margin."""


def test_an_export_and_an_import_need_at_most_twice_the_largest_array(tmp_path: Path) -> None:
    require(shutil.disk_usage(tmp_path).free > 6 * GIGABYTE, "The test writes 4 GB. Set TMPDIR to a disk with 6 GB.")
    require(Path("/proc/self/status").is_file(), "The test reads the memory of a process from /proc. Run it on Linux.")
    config, largest = large_checkpoint.write(tmp_path, LAYERS, **SIZES)
    allowed = 2 * largest + PROGRAM
    _, peak = large_checkpoint.measure("export", "--config", config, "--to", tmp_path / "exported")
    assert largest < peak < allowed
    assert allowed < sum(file.stat().st_size for file in (tmp_path / "exported").iterdir())
    shutil.rmtree(tmp_path / "large")
    back = tmp_path / "back"
    _, peak = large_checkpoint.measure("import", "--config", config, "--from", tmp_path / "exported", "--to", back)
    assert largest < peak < allowed
    shutil.rmtree(tmp_path)
