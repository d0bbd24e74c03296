"""The content of the image (Dockerfile, packages of one accelerator, trainer), and the tag derived from it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from launcher import distribution
from launcher.errors import LauncherError
from launcher.paths import docker_dir, trainer_dir

ACCELERATORS = ("cpu", "tpu", "gpu")
DOCKERFILE = "docker/Dockerfile"

# Modification time of files in the context, so that a fresh checkout and an installed wheel produce the same layers.
_TIME = 315532800  # 1980-01-01, the earliest time in a zip archive


@dataclass(frozen=True)
class Context:
    """Exactly the input of a build. `files` has them by their names in the build's folder."""

    files: Mapping[str, bytes]
    arguments: Mapping[str, str]

    @property
    def accelerator(self) -> str:
        return self.arguments["ACCELERATOR"]

    @property
    def ray_version(self) -> str:
        return self.arguments["RAY_VERSION"]

    @property
    def base(self) -> str:
        """The base image: the caller's choice, else the Dockerfile's default."""
        if "BASE" in self.arguments:
            return self.arguments["BASE"]
        return str(re.findall(r"^ARG BASE=(\S+)", self.files[DOCKERFILE].decode(), re.MULTILINE)[0])

    @cached_property
    def tag(self) -> str:
        """The tag, such as 0.1.0-cpu-1f0c2a9be4d3. The same files and arguments give the same tag on any machine."""
        digest = hashlib.sha256()
        for kind, parts in (("file", self.files), ("argument", self.arguments)):
            for name in sorted(parts):
                part = parts[name]
                data = part if isinstance(part, bytes) else part.encode()
                digest.update(f"{kind} {name} {len(data)}\0".encode() + data)
        return f"{self.arguments['SLIPWAY_VERSION']}-{self.accelerator}-{digest.hexdigest()[:12]}"

    def write(self, folder: Path) -> None:
        """Write the files to `folder`, readable by all users: the container's user is not the user who builds."""
        folder.mkdir(exist_ok=True)
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o644)
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir():
                path.chmod(0o755)
            os.utime(path, (_TIME, _TIME))


def read(accelerator: str, base: str | None = None) -> Context:
    """Return the context of the image for "cpu", "tpu" or "gpu". `base` replaces the Dockerfile's base image.

    Raises LauncherError if the image's files are missing or Slipway is not installed.
    """
    docker, trainer = docker_dir(), trainer_dir()
    if not (docker / "Dockerfile").is_file() or not (trainer / "__main__.py").is_file():
        raise LauncherError(f"The files of the image are missing ({docker} and {trainer}).", "Install Slipway again.")
    version = distribution.version()
    if version is None:
        raise LauncherError(
            "This Slipway is not installed, so the image's version is not known.", "In a checkout, run make setup."
        )
    names = [DOCKERFILE, f"docker/{accelerator}.txt", "docker/tools.txt"]
    files = {name: (docker / name.removeprefix("docker/")).read_bytes() for name in names}
    sources = sorted(path for path in trainer.rglob("*") if path.is_file() and path.suffix != ".pyc")
    files |= {f"trainer/{path.relative_to(trainer).as_posix()}": path.read_bytes() for path in sources}
    pins = dict(re.findall(r"^(\S+)==(\S+)", files[names[1]].decode(), re.MULTILINE))
    arguments = {
        **({"BASE": base} if base else {}),
        "ACCELERATOR": accelerator,
        "SLIPWAY_VERSION": version,
        **{f"{name.upper()}_VERSION": pins[name] for name in ("ray", "maxtext", "jax")},
    }
    return Context(files, arguments)
