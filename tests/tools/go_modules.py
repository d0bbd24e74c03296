"""Single files out of Go modules, checked against the pinned sum; the rest of the module is thrown away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from tests.tools.go_tools import cached, find_go


class Module(NamedTuple):
    """A module at a version, with its sum as go.sum has it."""

    path: str
    version: str
    sum: str

    def file(self, name: str) -> Path:
        """The file `name` of the module, downloaded where the cache of tools has none. Raises RuntimeError."""
        key = f"{self.path} {self.version} {self.sum}".encode()
        return cached(key, Path(name).name, lambda file: self._fetch(name, file))

    def _fetch(self, name: str, file: Path) -> None:
        at = f"{self.path}@{self.version}"
        print(f"Fetching {Path(name).name} of {at} once, into {file.parent} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as temporary:
            # A module cache of its own: the unpacked module may be 100 MB that nobody else wants.
            environment = {
                **os.environ,
                "GOMODCACHE": f"{temporary}/modules",
                "GOFLAGS": "-modcacherw",
                "GOTOOLCHAIN": "local",
                "GOWORK": "off",
            }
            command = [find_go(), "mod", "download", "-json", at]
            done = subprocess.run(command, cwd=temporary, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"Downloading {at} failed:\n{(done.stderr + done.stdout).strip()}")
            module = json.loads(done.stdout)
            if module["Sum"] != self.sum:
                raise RuntimeError(f"{at} is not the module that was pinned: {module['Sum']}, not {self.sum}.")
            made = Path(temporary) / file.name
            with (
                zipfile.ZipFile(module["Zip"]) as archive,
                archive.open(f"{at}/{name}") as source,
                made.open("wb") as target,
            ):
                shutil.copyfileobj(source, target)
            made.rename(file)
