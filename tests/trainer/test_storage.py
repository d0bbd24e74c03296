"""Storage that is full or disappears during a training: the reason names it, and nothing is lost.

A file system in memory replaces the bucket or the claim, which are not available here. For these, the tests use the
system's errors.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.prerequisites import require
from tests.trainer.runs import ONE_HOST, Run, TrainingHarness, steps
from trainer.config import RunConfig, read
from trainer.errors import StorageError
from trainer.storage_errors import named

STEPS = 40


@dataclass(frozen=True)
class Disk:
    path: Path

    def mount(self, options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.path], check=True)

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.path], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.path], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk")
    disk.path.mkdir()
    require(os.getuid() == 0 and shutil.which("mount"), "The test mounts a file system. Run it as root on Linux.")
    disk.mount("size=8m")
    yield disk
    subprocess.run(["umount", "-l", disk.path], check=False, capture_output=True)


def config_on(lab: TrainingHarness, folder: Path, name: str) -> Path:
    """Write the config of a run on one host, with its storage in `folder` and a checkpoint after each step."""
    programs = str(lab.root / ".jax_cache")
    config = lab.config(name, hosts=1, **{**ONE_HOST, "steps": STEPS}, checkpoint_period=1, jax_cache_dir=programs)
    tree = json.loads(config.read_text())
    tree["storage"]["mountPath"] = str(folder)
    config.write_text(json.dumps(tree))
    return config


def start_on(lab: TrainingHarness, disk: Disk, name: str) -> Run:
    started = lab.start(config_on(lab, disk.path, name), "--no-ray")
    return Run(disk.path / name, started.process, started.log)


def test_a_full_disk_is_reported_and_the_run_resumes_once_it_is_larger(
    lab: TrainingHarness, disk: Disk, undisturbed_host: Run
) -> None:
    run = start_on(lab, disk, "storage")
    assert run.wait() == 2, run.output()[-3000:]  # no restart
    # Orbax's threads may print more after it.
    assert [line for line in run.output().splitlines() if line.startswith("Error: ")] == [
        f"Error: The run's storage is full (No space left on device): the file system of {disk.path}. Free space there "
        "or enlarge it, and submit the run again: it resumes from its last checkpoint."
    ]
    disk.remount("size=500m")
    again = start_on(lab, disk, "storage")
    assert again.wait() == 0, again.output()[-3000:]
    first, second = (event["step"] for event in again.events())
    assert first == 0 < second
    assert steps(again) == steps(undisturbed_host)[:STEPS]


def test_missing_storage_is_reported(lab: TrainingHarness, disk: Disk) -> None:
    disk.remount("size=500m")
    run = start_on(lab, disk, "storage-gone")
    run.until(lambda: len(run.metrics()) > 3)
    disk.unmount()
    assert run.wait() == 1, run.output()[-3000:]
    assert [line for line in run.output().splitlines() if line.startswith("Error: ")] == [
        f"Error: The run's folder {disk.path}/storage-gone is missing: the file system of {disk.path} is not "
        "mounted, or the folder was removed. Check that it is mounted and available."
    ]


def stored(lab: TrainingHarness, kind: str, **storage: str) -> RunConfig:
    config = lab.config(f"stored-{kind}", hosts=1)
    tree = json.loads(config.read_text())
    tree["storage"] = {"kind": kind, "mountPath": str(lab.root), **storage}
    config.write_text(json.dumps(tree))
    (lab.root / f"stored-{kind}").mkdir(exist_ok=True)
    return read(config)


def test_the_message_names_the_bucket_or_the_claim_and_what_to_do(lab: TrainingHarness) -> None:
    configs = {"bucket": stored(lab, "gcsfuse", bucket="our-runs"), "claim": stored(lab, "pvc", claim="shared")}
    path = str(lab.root / "stored-gcsfuse" / "metrics.jsonl")
    expected = {
        (
            errno.ENOTCONN,
            "bucket",
        ): "The run's storage does not respond (Transport endpoint is not connected): the bucket "
        f"our-runs (storage.bucket), mounted at {lab.root}. See the log of the pod's container gke-gcsfuse-sidecar.",
        (errno.EACCES, "bucket"): "The run may not write to its storage (Permission denied): the bucket our-runs "
        f"(storage.bucket), mounted at {lab.root}. Grant the run's service account roles/storage.objectUser on it "
        "(with Workload Identity).",
        (
            errno.ESTALE,
            "claim",
        ): "The run's storage does not respond (Stale file handle): the PersistentVolumeClaim shared "
        f"(storage.claim), mounted at {lab.root}. Check its volume (kubectl describe pvc) and the server that "
        "provides it.",
        (errno.EDQUOT, "claim"): "The run's storage is full (Disk quota exceeded): the PersistentVolumeClaim shared "
        f"(storage.claim), mounted at {lab.root}. Free space there or enlarge it, and submit the run again: it "
        "resumes from its last checkpoint.",
    }
    for (number, which), sentence in expected.items():
        assert str(named(OSError(number, os.strerror(number), path), configs[which])) == sentence


def test_an_error_that_orbax_wraps_is_found_and_one_of_another_disk_is_not_the_storages(lab: TrainingHarness) -> None:
    config = stored(lab, "pvc", claim="shared")
    wrapped = RuntimeError("Checkpointing failed.")
    wrapped.__cause__ = ValueError(
        f'RESOURCE_EXHAUSTED: Error writing local file "{lab.root}/x": [OS error 28: ENOSPC No space left on device]'
    )
    assert isinstance(named(wrapped, config), StorageError)
    assert named(OSError(errno.ENOSPC, "No space left on device", "/dev/shm/x"), config) is None
    assert named(OSError(errno.ENOSPC, "No space left on device"), config) is None  # the test write succeeds
    text = PermissionError(errno.EACCES, "Permission denied", str(lab.root / "corpus.txt"))
    assert named(text, config) is None  # its own message names the file that cannot be read
    assert named(ValueError("shapes do not match"), config) is None
