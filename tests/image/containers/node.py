"""The machine that containers run on: a folder, a network, cgroups, and that all of it goes again.

Everything that a node makes carries its name, slipway-<process id>. It goes when the node ends, by an exception or
Ctrl-C too; what a killed process left behind is removed by the next node that starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.image.containers.names import Names
from tests.image.containers.network import Network, remove_all

# Outside of pytest's own folders, for the next run must find it; not on a tmpfs, for overlays are as large as
# what containers write.
ROOT = Path("/var/tmp/slipway-nodes")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Files:
    """A container image: its unpacked files, which are only read, and its OCI config."""

    rootfs: Path
    config: dict[str, Any]


@dataclass
class Node:
    """Where containers run; `node()` makes one."""

    name: str
    folder: Path
    network: Network
    names: Names
    at_end: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _count: int = field(default=0)

    @property
    def runc_state(self) -> Path:
        return self.folder / "runc"

    def cgroup(self, container: str) -> str:
        return f"/{self.name}/{container}"

    def new(self, kind: str) -> str:
        """A name that nothing else on this machine has."""
        self._count += 1
        return f"{self.name}-{kind}-{self._count}"


@contextmanager
def node() -> Iterator[Node]:
    """A node with an empty network; removes what dead ones have left, and in the end all of its own."""
    ROOT.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep()
    name = f"slipway-{os.getpid()}"
    with _claim(name) as lock:
        if lock is None:
            raise AssertionError(f"{name} is there already: one node a process")
        try:
            folder = ROOT / name
            folder.mkdir(mode=0o711)
            _make_cgroup(name)
            network = Network(name)
            with contextlib.closing(Names(network.node, network.address)) as names:
                made = Node(name, folder, network, names)
                with made.at_end:
                    yield made
        finally:
            remove(name)


def sweep() -> None:
    """Remove the nodes of processes that are gone; those that live hold a lock."""
    for name in sorted({path.stem for path in ROOT.iterdir()}):
        with _claim(name) as held:
            if held is not None:
                remove(name)


def _make_cgroup(name: str) -> None:
    """All containers of the node, which weigh as much as the dozen processes that they run: on this machine all other
    processes are single ones beside this group, not in groups of their own as on a Kubernetes node."""
    group = _CGROUPS / "cpu" / name
    group.mkdir()
    (group / "cpu.shares").write_text(str(12 * 1024))


@contextmanager
def _claim(name: str) -> Iterator[IO[bytes] | None]:
    """The node's lock, None where a living process has it; the file goes with the claim."""
    path = ROOT / f"{name}.lock"
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        try:
            yield lock
        finally:
            path.unlink(missing_ok=True)


def remove(name: str) -> None:
    """Remove all of a node: containers, mounts, namespaces, cgroups, its folder."""
    folder = ROOT / name
    state = folder / "runc"
    for container in sorted(state.iterdir()) if state.is_dir() else []:
        subprocess.run(["runc", "--root", state, "delete", "--force", container.name], capture_output=True, check=False)
    for mount in reversed(mounts_below(folder)):
        # A pod that just ends may have been faster.
        with contextlib.suppress(subprocess.CalledProcessError):
            unmount(mount)
    remove_all(name)
    for controller in _CGROUPS.iterdir():
        remove_cgroup(controller / name)
    shutil.rmtree(folder, ignore_errors=True)


def mounts_below(folder: Path) -> list[Path]:
    """What is mounted in a folder, in the order it was mounted."""
    found = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [path for path in found if path.is_relative_to(folder)]


def unmount(path: Path) -> None:
    # Lazily: a process that is being killed may still be in it.
    subprocess.run(["umount", "--lazy", path], check=True, capture_output=True)


def remove_cgroup(path: Path) -> None:
    """Remove a cgroup and those below; a process that was killed may take a moment to leave."""
    if not path.is_dir():
        return
    deadline = time.monotonic() + 5
    for folder, _, _ in path.walk(top_down=False):
        while True:
            with contextlib.suppress(FileNotFoundError):
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
                    continue
            break
