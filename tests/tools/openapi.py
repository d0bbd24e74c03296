"""Kubernetes' own schemas: api/openapi-spec/swagger.json of each supported minor version.

They come from the k8s.io/kubernetes module (19 MB each, two seconds), are checked against the pinned sum, and stay in
the cache of tools. No other file of the module is kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tools.go_modules import Module

MODULE = "k8s.io/kubernetes"
VERSIONS = {
    "1.33": ("v1.33.13", "h1:bmH31xUdSzeA5vk0wZAK9MZp11mdLuzUSeKk0qN3hPQ="),
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
    """The path of swagger.json of Kubernetes `minor`, downloaded if the cache does not have it. Raises RuntimeError."""
    version, wanted = VERSIONS[minor]
    return Module(MODULE, version, wanted).file("api/openapi-spec/swagger.json")
