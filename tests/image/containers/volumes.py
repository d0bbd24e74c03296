"""A pod's volumes on the node: claims, emptyDir folders, memory, and files with the pod's metadata."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

from tests.image.containers.manifests import amount, field_of
from tests.image.containers.node import unmount
from tests.image.containers.runtime import Mount


class Volumes:
    """The volumes of one pod, in `folder`. A claim is a folder that is kept after the pod's end."""

    def __init__(self, manifest: dict[str, Any], folder: Path, claims: dict[str, Path]) -> None:
        self._group: int | None = (manifest["spec"].get("securityContext") or {}).get("fsGroup")
        self._paths: dict[str, Path] = {}
        self._memory: list[Path] = []
        folder.mkdir()
        for volume in manifest["spec"].get("volumes", []):
            name = volume["name"]
            if "persistentVolumeClaim" in volume:
                self._paths[name] = claims[volume["persistentVolumeClaim"]["claimName"]]
                self._give_to_group(self._paths[name])
                continue
            path = self._paths[name] = folder / name
            path.mkdir()
            if "emptyDir" in volume:
                path.chmod(0o777)
                if volume["emptyDir"].get("medium") == "Memory":
                    self._mount_memory(path, manifest["spec"], volume["emptyDir"])
                self._give_to_group(path)
            elif "downwardAPI" in volume:
                for item in volume["downwardAPI"]["items"]:
                    (path / item["path"]).write_text(field_of(manifest, item["fieldRef"]["fieldPath"]))
                    (path / item["path"]).chmod(int(volume["downwardAPI"].get("defaultMode", 0o644)))
                self._give_to_group(path)
            else:
                raise AssertionError(f"this harness does not support the volume {volume}")

    def mounts(self, container: dict[str, Any]) -> list[Mount]:
        return [
            Mount(self._paths[each["name"]] / each.get("subPath", ""), each["mountPath"], each.get("readOnly", False))
            for each in container.get("volumeMounts", [])
        ]

    def remove(self) -> None:
        for path in self._memory:
            unmount(path)
        self._memory.clear()

    def _mount_memory(self, path: Path, spec: dict[str, Any], source: dict[str, Any]) -> None:
        """Mount a tmpfs with the size of its limit, or else of the memory limits of all containers of the pod."""
        limits = [((each.get("resources") or {}).get("limits") or {}).get("memory") for each in spec["containers"]]
        size = amount(source["sizeLimit"]) if "sizeLimit" in source else sum(amount(each or 0) for each in limits)
        options = f"mode=777,size={int(size)}" if size else "mode=777"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=True)
        self._memory.append(path)

    def _give_to_group(self, root: Path) -> None:
        """Change group and mode as the kubelet does for fsGroup with fsGroupChangePolicy OnRootMismatch.

        If the root folder already has the group and the mode, nothing is changed.
        """
        if self._group is None:
            return
        now = root.stat()
        if now.st_gid == self._group and now.st_mode & stat.S_ISGID and now.st_mode & 0o070 == 0o070:
            return
        for path in (root, *root.rglob("*")):
            if path.is_symlink():
                continue
            os.chown(path, -1, self._group)
            bits = 0o2770 if path.is_dir() else 0o660
            path.chmod(stat.S_IMODE(path.stat().st_mode) | bits)
