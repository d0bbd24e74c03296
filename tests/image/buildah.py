"""Buildah with a separate storage, and the arguments that a build on this machine needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"  # the path on Debian, which the base image is


@dataclass(frozen=True)
class Buildah:
    """Buildah with its images in `folder`. The machine's own storage and configuration are not changed."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "BUILDAH_ISOLATION": "chroot",  # needs no container runtime and no cgroup
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.folder / "registries.conf"),
        }

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        storage = {"driver": "overlay", "graphroot": str(self.folder / "graph"), "runroot": str(self.folder / "run")}
        lines = [f"{key} = {json.dumps(value)}" for key, value in storage.items()]
        (self.folder / "storage.conf").write_text("\n".join(["[storage]", *lines, ""]))
        (self.folder / "registries.conf").write_text("unqualified-search-registries = []\n")

    def __call__(self, *arguments: str) -> str:
        """Run buildah and return its output. Raises RuntimeError with its error output if it fails."""
        done = subprocess.run(["buildah", *arguments], env=self.env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"buildah {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        return bool(self("images", "--quiet", "--filter", f"reference={image}"))

    def inspect(self, image: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("inspect", "--type", "image", image))
        return found

    def import_archive(self, archive: Path, image: str) -> None:
        container = self("from", "scratch")
        try:
            self("add", "--quiet", container, str(archive), "/")
            self("config", "--env", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
            self("commit", "--quiet", container, image)
        finally:
            self("rm", container)

    def unpack(self, image: str, folder: Path) -> None:
        """Write the image's files to `folder`, as a container of the image sees them."""
        container = self("from", "--pull-never", image)
        try:
            mounted = self("mount", container)
            draft = folder.with_name(f"{folder.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            subprocess.run(["cp", "-a", mounted, str(draft)], check=True)
            draft.rename(folder)
        finally:
            self("rm", container)


def machine_arguments(folder: Path) -> list[str]:
    """Arguments with which a build uses this machine's package index and certificates, as pip and uv are configured
    here. Writes the files of these arguments to `folder`."""
    pip = {"cert": _CERTIFICATES}
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        if key in ("index-url", "extra-index-url", "trusted-host", "default-timeout", "proxy"):
            pip[key] = value.strip("'")
    (folder / "pip.conf").write_text("\n".join(["[global]", *(f"{k} = {v}" for k, v in pip.items()), ""]))

    uv: dict[str, str] = {}
    for path in (Path("/etc/uv/uv.toml"), Path.home() / ".config/uv/uv.toml"):
        if path.is_file():
            found = tomllib.loads(path.read_text())
            uv |= {key: found[key] for key in ("index-url", "extra-index-url", "index") if key in found}
    for variable, key in (("UV_INDEX_URL", "index-url"), ("UV_DEFAULT_INDEX", "index-url")):
        if os.environ.get(variable):
            uv[key] = os.environ[variable]
    lines = ["system-certs = true", *(f"{key} = {json.dumps(value)}" for key, value in uv.items())]
    (folder / "uv.toml").write_text("\n".join([*lines, ""]))

    arguments = [f"--secret=id={name},src={folder / name}" for name in ("pip.conf", "uv.toml")]
    certificates = os.environ.get("SSL_CERT_FILE") or os.environ.get("PIP_CERT") or _CERTIFICATES
    if Path(certificates).is_file():
        arguments.append(f"--volume={Path(certificates).resolve()}:{_CERTIFICATES}:ro")
    return arguments
