"""Keeps JAX's compiled programs between test runs: a compile on CPU takes longer than the training that a test needs.

A training writes its compiled programs to `.jax_cache`, next to its run's folder. `kept(runs)` fills that folder from
the cache before the tests, and adds new programs to the cache afterwards. JAX's own key of an entry is a hash of the
program and of the compiler's options and version. So a change in the trainer, in MaxText or in a test's model gives a
new entry. This machine's processor and the exact packages are not in JAX's key; they are in the name of the cache's
folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.tools.go_tools import cache_dir

CHECKOUT = Path(__file__).parents[1]
SUFFIX = "-cache"
"""JAX's suffix of the file of every entry."""


@contextlib.contextmanager
def kept(runs: Path, *, link: bool = True) -> Iterator[None]:
    """Provide the cached programs to the trainings with folders in `runs`, and add their new programs to the cache.

    link: use hard links. False makes copies, for files whose owner will change.
    """
    store, used = folder(), runs / ".jax_cache"
    store.mkdir(parents=True, exist_ok=True)
    used.mkdir(parents=True, exist_ok=True)
    for entry in store.glob(f"*{SUFFIX}"):
        with contextlib.suppress(FileExistsError):
            _link(entry, used / entry.name) if link else shutil.copyfile(entry, used / entry.name)
    yield
    for entry in used.glob(f"*{SUFFIX}"):
        # JAX writes an entry in place, so that of a killed process may be truncated.
        if not (store / entry.name).exists() and _complete(entry):
            draft = store / f".{os.getpid()}-{entry.name}"
            shutil.copyfile(entry, draft)
            draft.rename(store / entry.name)


def folder() -> Path:
    """Return the cache's folder for the programs of this machine and these packages."""
    return cache_dir().with_name("jax") / key(_processor(), (CHECKOUT / "docker" / "constraints.txt").read_bytes())


def key(processor: str, packages: bytes) -> str:
    return hashlib.sha256(f"{platform.machine()}\0{processor}\0".encode() + packages).hexdigest()[:16]


def _processor() -> str:
    """Return the processor's instruction sets, or its name if the system does not list them."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].strip()
    return platform.processor()


def _link(source: Path, target: Path) -> None:
    """Create a hard link, or a copy on another file system. A link is safe because JAX writes an entry only once."""
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(source, target)


def _complete(entry: Path) -> bool:
    from jax._src import compilation_cache

    try:
        compilation_cache.decompress_executable(entry.read_bytes())
    except Exception:  # each compressor that JAX may use raises its own errors
        return False
    return True
