"""The faults of a drill on this machine that need no training (launcher/products/drill/local/faults.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher import api
from launcher.products.drill.local.faults import FAULTS
from launcher.products.drill.local.run import LocalRun


def test_a_storage_refuses_checkpoints_until_it_is_repaired(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, api.plan(["quickstart"], name="drilled"), None, ray=False)
    run.checkpoints.mkdir()
    fault = next(fault for fault in FAULTS if fault.name == "storage-refused")
    try:
        fault.inject(run)
        with pytest.raises(PermissionError):
            (run.checkpoints / "10").mkdir()
    finally:
        fault.undo(run)
    (run.checkpoints / "10").mkdir()
    fault.undo(run)
    assert (run.checkpoints / "10").is_dir()
