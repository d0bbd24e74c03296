"""The machine on which containers run: a folder, a network, cgroups, and their cleanup.

All resources of a node have its name, slipway-<process id>. They are removed when the node ends, also after an
exception or Ctrl-C. The next node that starts removes what a killed process left.
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

from tests.image.containers.dns import DnsServer
from tests.image.containers.network import Network, remove_all

# Outside pytest's own folders, because the next run must find it. Not on a tmpfs, because overlays grow with all that
# containers write.
ROOT = Path("/var/tmp/slipway-nodes")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class ImageFiles:
    """A container image: its unpacked files, which containers do not change, and its OCI config."""

    rootfs: Path
    config: dict[str, Any]


@dataclass
class Node:
    """The machine on which containers run; `node()` creates one."""

    name: str
    folder: Path
    network: Network
    dns: DnsServer
    at_end: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _count: int = field(default=0)

    @property
    def runc_state(self) -> Path:
        return self.folder / "runc"

    def cgroup(self, container: str) -> str:
        return f"/{self.name}/{container}"

    def new(self, kind: str) -> str:
        """A name that is unique on this machine."""
        self._count += 1
        return f"{self.name}-{kind}-{self._count}"


@contextmanager
def node() -> Iterator[Node]:
    """A node with an empty network. Removes what killed nodes left, and at the end its own resources."""
    ROOT.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep()
    name = f"slipway-{os.getpid()}"
    with _claim(name) as lock:
        if lock is None:
            raise AssertionError(f"{name} already exists: a process can have one node")
        try:
            folder = ROOT / name
            folder.mkdir(mode=0o711)
            _make_cgroup(name)
            network = Network(name)
            with contextlib.closing(DnsServer(network.node, network.address)) as dns:
                made = Node(name, folder, network, dns)
                with made.at_end:
                    yield made
        finally:
            remove(name)


def sweep() -> None:
    """Remove the nodes of processes that have ended. A living process holds the lock of its node."""
    for name in sorted({path.stem for path in ROOT.iterdir()}):
        with _claim(name) as held:
            if held is not None:
                remove(name)


def _make_cgroup(name: str) -> None:
    """Create the CPU cgroup of all containers of the node, with the weight of the dozen processes that they run.

    The other processes of this machine are not in groups as on a Kubernetes node, so each of them competes with the
    whole group.
    """
    group = _CGROUPS / "cpu" / name
    group.mkdir()
    (group / "cpu.shares").write_text(str(12 * 1024))


@contextmanager
def _claim(name: str) -> Iterator[IO[bytes] | None]:
    """Hold the node's lock while this is open; None if a living process has it. The file is removed at the end."""
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
    """Remove everything of a node: containers, mounts, namespaces, cgroups, its folder."""
    folder = ROOT / name
    state = folder / "runc"
    for container in sorted(state.iterdir()) if state.is_dir() else []:
        subprocess.run(["runc", "--root", state, "delete", "--force", container.name], capture_output=True, check=False)
    for mount in reversed(mounts_below(folder)):
        # A pod that is ending may have unmounted it already.
        with contextlib.suppress(subprocess.CalledProcessError):
            unmount(mount)
    remove_all(name)
    for controller in _CGROUPS.iterdir():
        remove_cgroup(controller / name)
    shutil.rmtree(folder, ignore_errors=True)


def mounts_below(folder: Path) -> list[Path]:
    """The mounts in a folder, in the order in which they were mounted."""
    found = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [path for path in found if path.is_relative_to(folder)]


def unmount(path: Path) -> None:
    # Lazy, because a process that is being killed can still use it.
    subprocess.run(["umount", "--lazy", path], check=True, capture_output=True)


def remove_cgroup(path: Path) -> None:
    """Remove a cgroup and its children. Retries, because killed processes leave a cgroup with a delay."""
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
