"""Fixtures for the CPU image: built as a user builds it, and unpacked for containers."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.image.base import base_archive, base_key
from tests.image.buildah import Buildah, machine_arguments
from tests.image.containers.fixtures import machine, team, undisturbed_job  # noqa: F401
from tests.prerequisites import require
from tests.tools.go_tools import cache_dir

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "localhost/slipway"
_NEEDED = ("buildah", "debootstrap")


@dataclass(frozen=True)
class Image:
    """An image's root file system, and its OCI config. Tests only read the files, because all containers share them."""

    rootfs: Path
    config: dict[str, Any]


@dataclass(frozen=True)
class Builder:
    """The prerequisites of a build: buildah with its storage, the base's name there, this machine's arguments."""

    buildah: Buildah
    base: str
    arguments: tuple[str, ...]


@pytest.fixture(scope="session")
def builder() -> Builder:
    """A cached storage with the base, so that the next session builds only changed layers."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    lacks = f"{' and '.join(missing)}" if missing else "root"
    require(
        not missing and os.geteuid() == 0,
        f"The image tests need {lacks}; on Debian, apt-get install {' '.join(_NEEDED)}, and run them as root.",
    )
    folder = cache_dir().with_name("images")
    folder.mkdir(parents=True, exist_ok=True)
    archive = base_archive()
    buildah = Buildah(folder / "storage")
    with lock(folder / ".lock"):
        # Keep only one set of packages, because each has 2 GB.
        key = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(ROOT.glob("docker/*.txt")))).hexdigest()
        mark = buildah.folder / "packages"
        known = mark.is_file() and mark.read_text() == key
        buildah.prepare()
        buildah("rm", "--all")  # containers of killed builds
        if not known:
            buildah("rmi", "--all", "--force")
        mark.write_text(key)
        base = f"localhost/slipway-base:{base_key()}"
        if not buildah.has(base):
            buildah.import_archive(archive, base)
        arguments = machine_arguments(buildah.folder)
    return Builder(buildah, base, ("--pull-never", *arguments))


@pytest.fixture(scope="session")
def image(builder: Builder) -> Iterator[Image]:
    """The CPU image. Its files stay in the cache until another image replaces them."""
    folder = cache_dir().with_name("images")
    with lock(folder / ".lock"):
        name = name_of(build(builder))
        found = builder.buildah.inspect(name)
        rootfs = folder / f"rootfs-{found['FromImageID'][:16]}"
        if not rootfs.is_dir():
            builder.buildah.unpack(name, rootfs)
        used = lock(rootfs.with_suffix(".lock"), fcntl.LOCK_SH)
        used.__enter__()
        _remove_unused(folder)
    yield Image(rootfs, found["OCIv1"]["config"])
    used.__exit__(None, None, None)


def build(builder: Builder, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run `launcher image build` for CPU, in the builder's storage, with the arguments for this machine."""
    command = [
        sys.executable,
        "-m",
        "launcher",
        "image",
        "build",
        "--accelerator=cpu",
        "--tool=buildah",
        "--output=json",
    ]
    done = subprocess.run(
        [*command, f"--repository={REPOSITORY}", f"--base={builder.base}", *options, "--", *builder.arguments],
        cwd=builder.buildah.folder,
        env={**builder.buildah.env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode != 0:
        raise RuntimeError(done.stderr[-4000:])
    return done


def name_of(done: subprocess.CompletedProcess[str]) -> str:
    built = json.loads(done.stdout)
    return f"{built['repository']}:{built['tag']}"


@contextmanager
def lock(path: Path, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, kind)
        yield


def _remove_unused(folder: Path) -> None:
    """Remove files of older images that no session uses. Each set has 2 GB."""
    for rootfs in folder.glob("rootfs-*"):
        if not rootfs.is_dir():
            continue
        with rootfs.with_suffix(".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(rootfs)
