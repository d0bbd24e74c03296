"""The sentences for errors of the run's storage that tests/trainer/test_storage.py does not cause."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from trainer.config import RunConfig
from trainer.errors import StorageError
from trainer.storage_errors import named

PVC = {"kind": "pvc", "claim": "shared"}
BUCKET = {"kind": "gcsfuse", "bucket": "our-runs"}


def stored(root: Path, storage: dict[str, Any]) -> RunConfig:
    (root / "demo").mkdir(exist_ok=True)
    return RunConfig(root / "run.json", {"run": {"name": "demo"}, "storage": {**storage, "mountPath": str(root)}})


@pytest.mark.parametrize(
    ("number", "storage", "start", "end"),
    [
        (errno.EROFS, PVC, "The run's storage has become read-only (Read-only", "and the server that provides it."),
        (
            errno.EROFS,
            {},
            "The run's storage has become read-only (Read-only",
            "Check that it is mounted and available.",
        ),
        (errno.EACCES, PVC, "The run may not write to its storage (Permission denied)", "or to its group."),
        (errno.EACCES, {}, "The run may not write to its storage (", f"permissions; the run's user is {os.getuid()}."),
        (errno.EIO, BUCKET, "The run's storage does not respond (Input/output error)", "gke-gcsfuse-sidecar."),
    ],
)
def test_each_kind_of_storage_has_its_sentence(
    tmp_path: Path, number: int, storage: dict[str, Any], start: str, end: str
) -> None:
    config = stored(tmp_path, storage)
    found = str(named(OSError(number, os.strerror(number), str(config.folder / "x")), config))
    assert found.startswith(start)
    assert found.endswith(end)


def test_an_error_without_a_path_is_the_storages_if_it_cannot_be_written_to(tmp_path: Path) -> None:
    config = stored(tmp_path, PVC)
    error = RuntimeError("Checkpointing failed: [OS error 28: ENOSPC No space left on device]")
    assert named(error, config) is None
    (config.folder / f".probe-{os.getpid()}").symlink_to("/dev/full")
    assert isinstance(named(error, config), StorageError)
    assert not list(config.folder.iterdir())


def test_errors_that_cause_each_other_are_searched_once(tmp_path: Path) -> None:
    first, second = ValueError("shapes do not match"), KeyError("x")
    first.__cause__, second.__cause__ = second, first
    assert named(first, stored(tmp_path, PVC)) is None
