"""Runs one container with runc. Its root is an overlay of the image's files. It shares only the pod's network.

The configuration is that of containerd, except for two settings that need CAP_SYS_RESOURCE, which root on this machine
may not have: a higher limit of open files, and a lower OOM score.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.image.containers.network import path_of
from tests.image.containers.node import ImageFiles, Node, remove_cgroup, unmount
from tests.image.containers.security import Security


@dataclass(frozen=True)
class Mount:
    """A folder or file of the node that is mounted in a container."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Spec:
    """The specification of a container; `memory` in bytes (0: no limit), `cpu_shares`: 1024 for each core."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    hostname: str
    network: str
    security: Security
    mounts: tuple[Mount, ...]
    memory: int = 0
    cpu_shares: int = 2


class Container:
    """A started container. Its log is the output of its first process, through a pipe of runc."""

    def __init__(self, node: Node, image: ImageFiles, spec: Spec, log: Path) -> None:
        self._node = node
        self.id = node.new("container")
        self._bundle = node.folder / self.id
        self._root = self._bundle / "root"
        for name in ("root", "upper", "work"):
            (self._bundle / name).mkdir(parents=True)
        layers = f"lowerdir={image.rootfs},upperdir={self._bundle / 'upper'},workdir={self._bundle / 'work'}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, self._root], check=True)
        (self._bundle / "config.json").write_text(json.dumps(self._config(spec)))
        self.started = time.time()
        # A separate session: only the tests receive Ctrl-C from the terminal, and then end the container.
        self._runc = subprocess.Popen(
            ["runc", "--root", node.runc_state, "run", "--bundle", self._bundle, self.id],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._keep_log, args=[log], daemon=True)
        self._reader.start()
        self._await_start()

    def poll(self) -> int | None:
        """The exit code of the first process; 128 plus the number if a signal ended it; None while it runs."""
        return self._runc.poll()

    def wait(self, seconds: float) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        return self._runc.wait(seconds)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the first process. Does nothing if it has ended."""
        subprocess.run(
            ["runc", "--root", self._node.runc_state, "kill", self.id, str(int(number))],
            capture_output=True,
            check=False,
        )

    def execute(self, *command: str, seconds: float = 60, user: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program in the container with its variables, as its own user or as `user` ("uid:gid")."""
        options = ["--user", user] if user else []
        return subprocess.run(
            ["runc", "--root", self._node.runc_state, "exec", *options, self.id, *command],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def remove(self) -> None:
        """Remove the container. Kills it if it still runs."""
        subprocess.run(
            ["runc", "--root", self._node.runc_state, "delete", "--force", self.id], capture_output=True, check=False
        )
        self._runc.wait(30)
        self._reader.join(10)
        unmount(self._root)
        for controller in Path("/sys/fs/cgroup").iterdir():
            remove_cgroup(controller / self._node.cgroup(self.id).lstrip("/"))

    def memory(self, what: str) -> int:
        """A value of the container's memory cgroup: limit_in_bytes, max_usage_in_bytes or failcnt."""
        path = Path("/sys/fs/cgroup/memory") / self._node.cgroup(self.id).lstrip("/") / f"memory.{what}"
        return int(path.read_text())

    def _await_start(self) -> None:
        """Wait until the program runs: runc has written its state and removed exec.fifo, which blocks the program."""
        state = self._node.runc_state / self.id
        while self._runc.poll() is None and (not (state / "state.json").exists() or (state / "exec.fifo").exists()):
            time.sleep(0.01)

    def listening(self) -> set[int]:
        """The TCP ports on which a process of the pod listens, except on loopback addresses."""
        found = set()
        for version in ("tcp", "tcp6"):
            for line in self.execute("cat", f"/proc/net/{version}").stdout.splitlines()[1:]:
                local, state = line.split()[1], line.split()[3]
                address, _, port = local.partition(":")
                # 0A is LISTEN; the kernel writes 127.0.0.1 as one little-endian number.
                if state == "0A" and not address.endswith("0100007F") and address != "0" * 24 + "01000000":
                    found.add(int(port, 16))
        return found

    def _keep_log(self, log: Path) -> None:
        assert self._runc.stdout is not None
        with self._runc.stdout as pipe, log.open("ab", buffering=0) as file:
            while chunk := os.read(pipe.fileno(), 1 << 16):
                file.write(chunk)

    def _config(self, spec: Spec) -> dict[str, Any]:
        security = spec.security
        every = {name: list(security.capabilities) for name in ("bounding", "permitted", "effective")}
        devices = [{"allow": False, "access": "rwm"}]
        resources: dict[str, Any] = {"devices": devices, "cpu": {"shares": max(2, spec.cpu_shares)}}
        if spec.memory:
            resources["memory"] = {"limit": spec.memory}
        linux: dict[str, Any] = {
            "cgroupsPath": self._node.cgroup(self.id),
            "resources": resources,
            "namespaces": [
                *({"type": kind} for kind in ("mount", "pid", "ipc", "uts")),
                {"type": "network", "path": str(path_of(spec.network))},
            ],
            "maskedPaths": [f"/proc/{name}" for name in ("acpi", "asound", "kcore", "keys", "timer_list", "scsi")],
            "readonlyPaths": [f"/proc/{name}" for name in ("bus", "fs", "irq", "sys", "sysrq-trigger")],
        }
        if security.seccomp:
            linux["seccomp"] = security.seccomp
        return {
            "ociVersion": "1.0.2",
            "hostname": spec.hostname,
            "root": {"path": str(self._root), "readonly": security.read_only_root},
            "process": {
                "terminal": False,
                "user": {"uid": security.uid, "gid": security.gid, "additionalGids": list(security.groups)},
                "args": list(spec.arguments),
                "env": [f"{name}={value}" for name, value in spec.environment.items()],
                "cwd": spec.folder,
                "capabilities": every,
                "noNewPrivileges": security.no_new_privileges,
            },
            "mounts": _mounts(spec.mounts),
            "linux": linux,
        }


def _mounts(given: Sequence[Mount]) -> list[dict[str, Any]]:
    usual = [
        ("proc", "/proc", "proc", ["nosuid", "noexec", "nodev"]),
        ("tmpfs", "/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ("devpts", "/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        ("shm", "/dev/shm", "tmpfs", ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        ("mqueue", "/dev/mqueue", "mqueue", ["nosuid", "noexec", "nodev"]),
        ("sysfs", "/sys", "sysfs", ["nosuid", "noexec", "nodev", "ro"]),
        ("cgroup", "/sys/fs/cgroup", "cgroup", ["nosuid", "noexec", "nodev", "relatime", "ro"]),
    ]
    taken = {mount.target for mount in given}
    return [
        *(
            {"source": source, "destination": target, "type": kind, "options": options}
            for source, target, kind, options in usual
            if target not in taken
        ),
        *(
            {
                "source": str(mount.source),
                "destination": mount.target,
                "type": "bind",
                "options": ["rbind", "rprivate", "ro" if mount.read_only else "rw"],
            }
            for mount in given
        ),
    ]
