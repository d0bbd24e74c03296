"""JAX's compiled programs, kept between test runs: a compile on CPU takes longer than the training that a test needs.

A training writes its compiled programs to `.jax_cache`, next to its run's folder. `kept(runs)` fills that folder from
the cache before the tests and adds what is new afterwards. JAX's own key of an entry is a hash of the program, the
compiler's options and version; so a change of the trainer, of MaxText or of a test's model is a new entry. What JAX
leaves out of it, this machine's processor and the exact packages, names the folder.
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
"""JAX's own: every entry's file ends with it."""


@contextlib.contextmanager
def kept(runs: Path, *, link: bool = True) -> Iterator[None]:
    """Let the trainings whose folders are in `runs` use the kept programs, and keep the new ones.

    link: by hard links, unless the owner of the files is to change.
    """
    store, used = folder(), runs / ".jax_cache"
    store.mkdir(parents=True, exist_ok=True)
    used.mkdir(parents=True, exist_ok=True)
    for entry in store.glob(f"*{SUFFIX}"):
        with contextlib.suppress(FileExistsError):
            _link(entry, used / entry.name) if link else shutil.copyfile(entry, used / entry.name)
    yield
    for entry in used.glob(f"*{SUFFIX}"):
        # JAX writes an entry in place, so one of a killed process may be cut short.
        if not (store / entry.name).exists() and _complete(entry):
            draft = store / f".{os.getpid()}-{entry.name}"
            shutil.copyfile(entry, draft)
            draft.rename(store / entry.name)


def folder() -> Path:
    """Where programs are kept that this machine and these packages have compiled."""
    return cache_dir().with_name("jax") / key(_processor(), (CHECKOUT / "docker" / "constraints.txt").read_bytes())


def key(processor: str, packages: bytes) -> str:
    return hashlib.sha256(f"{platform.machine()}\0{processor}\0".encode() + packages).hexdigest()[:16]


def _processor() -> str:
    """The instructions that the compiler may use; the processor's name where the system does not list them."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].strip()
    return platform.processor()


def _link(source: Path, target: Path) -> None:
    """A hard link, or a copy on another file system: JAX never writes an entry a second time."""
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
    except Exception:  # each of the compressors that JAX may use raises an error of its own
        return False
    return True
