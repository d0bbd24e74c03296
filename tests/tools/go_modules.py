"""Downloads single files of Go modules and checks the module against the pinned sum. No other file is kept."""

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
    """A module at a version; `sum` as in go.sum."""

    path: str
    version: str
    sum: str

    def file(self, name: str) -> Path:
        """The path of the module's file `name`, downloaded if the cache does not have it. Raises RuntimeError."""
        key = f"{self.path} {self.version} {self.sum}".encode()
        return cached(key, Path(name).name, lambda file: self._fetch(name, file))

    def _fetch(self, name: str, file: Path) -> None:
        at = f"{self.path}@{self.version}"
        print(f"Fetching {Path(name).name} of {at} once, into {file.parent} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as temporary:
            # A temporary module cache: the unpacked module can have 100 MB, and nothing else needs it.
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
