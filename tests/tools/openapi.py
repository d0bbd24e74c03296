"""Kubernetes' own schemas: api/openapi-spec/swagger.json of each supported minor version.

They come from the k8s.io/kubernetes module (19 MB each, two seconds), checked against the pinned sum, and stay in
the cache of tools; the rest of the module is thrown away.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tests.tools.go_tools import cached, find_go

MODULE = "k8s.io/kubernetes"
VERSIONS = {
    "1.34": ("v1.34.4", "h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk="),
    "1.35": ("v1.35.4", "h1:o/8dBC/pHVpYoGV4OAIytAlNPZbdYVTXJHoYvXC4qzM="),
    "1.36": ("v1.36.2", "h1:qsCug7E1dMVO+rNuCENKG64Z7SVS/fTqDHGI1/NCmTg="),
}
"""Each supported minor version: the module's version and its sum, as go.sum has it."""


def definitions(minor: str) -> dict[str, Any]:
    """The schemas of Kubernetes `minor` ("1.36") by their Go-like names, such as io.k8s.api.core.v1.Pod."""
    found: dict[str, Any] = json.loads(swagger(minor).read_bytes())["definitions"]
    return found


def swagger(minor: str) -> Path:
    """The file swagger.json of Kubernetes `minor`, downloaded where the cache has none. Raises RuntimeError."""
    version, wanted = VERSIONS[minor]
    key = f"{MODULE} {version} {wanted}".encode()
    return cached(key, "swagger.json", lambda file: _fetch(version, wanted, file))


def _fetch(version: str, wanted: str, file: Path) -> None:
    print(f"Fetching the schemas of Kubernetes {version} once, into {file.parent} …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as temporary:
        # A module cache of its own: the unpacked module is 100 MB that nobody else wants.
        environment = {
            **os.environ,
            "GOMODCACHE": f"{temporary}/modules",
            "GOFLAGS": "-modcacherw",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }
        command = [find_go(), "mod", "download", "-json", f"{MODULE}@{version}"]
        done = subprocess.run(command, cwd=temporary, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"Downloading {MODULE}@{version} failed:\n{(done.stderr + done.stdout).strip()}")
        module = json.loads(done.stdout)
        if module["Sum"] != wanted:
            raise RuntimeError(f"{MODULE}@{version} is not the module that was pinned: {module['Sum']}, not {wanted}.")
        made = Path(temporary) / file.name
        with zipfile.ZipFile(module["Zip"]) as archive:
            name = f"{MODULE}@{version}/api/openapi-spec/swagger.json"
            with archive.open(name) as source, made.open("wb") as target:
                shutil.copyfileobj(source, target)
        made.rename(file)
