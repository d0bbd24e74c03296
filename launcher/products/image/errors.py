"""The cause of a failed build or push, from the output of the tools."""

from __future__ import annotations

import re
from collections.abc import Sequence

from launcher.errors import LauncherError
from launcher.products.image.context import Context
from launcher.products.image.registry import Repository
from launcher.products.image.tools import Tool

# Peak disk usage of a build in gigabytes: the image, plus the data that is unpacked but not committed yet.
_SPACE = {"cpu": 5, "tpu": 8, "gpu": 16}

_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_DENIED = re.compile(
    r"unauthorized|denied|forbidden|authentication required|no basic auth|status (code )?40[13]|40[13] ", re.IGNORECASE
)
_AWAY = re.compile(
    r"no such host|connection refused|i/o timeout|network is unreachable|gave HTTP response|certificate|\bEOF\b"
    r"|deadline exceeded",
    re.IGNORECASE,
)
# Messages of docker, podman and buildah if they cannot get the base image.
_NO_BASE = re.compile(
    r"failed to resolve source metadata|pull access denied|manifest unknown|initializing source|image not known"
    r"|unable to copy from source|short-name|error pulling|creating build container",
    re.IGNORECASE,
)
# Matches a whole line, because the tools also print the Dockerfile's command, which contains the sentence.
_PYTHON = re.compile(r"^(#\d+ [\d.]+ )?The base image must have Python 3\.12\.$", re.MULTILINE)
_PIP = re.compile(
    r"Could not find a version|No matching distribution|Failed to (fetch|download|build)|No solution found"
    r"|error sending request|Max retries exceeded|was not found in the package registry",
    re.IGNORECASE,
)


def explain(
    lines: Sequence[str], command: Sequence[str], code: int, context: Context, repository: str, tool: Tool
) -> LauncherError:
    """Return the error for a command that failed with these last lines."""
    text = "\n".join(lines)
    pushing = command[1] == "push"
    host = Repository.parse(repository).host
    if _FULL.search(text):
        need = _SPACE[context.accelerator]
        prune = "buildah rmi --prune" if tool.name == "buildah" else f"{tool.name} image prune"
        return LauncherError(
            f"The disk is full: the {context.accelerator} image takes about {need} GB where {tool.name} keeps images.",
            f"Free some space; {prune} removes unused images.",
        )
    if pushing or tool.pushes_always:
        if _DENIED.search(text):
            return LauncherError(
                f"{host} refuses the push to {repository}: {_line(lines, _DENIED)}.",
                f"Log in ({_login(host, tool)}), and check that you may write to this repository.",
            )
        if pushing and _AWAY.search(text):
            return LauncherError(f"{host} cannot be reached for the push: {_line(lines, _AWAY)}.")
    if _PYTHON.search(text):
        return LauncherError(f"The base image {context.base} has no Python 3.12.", "Choose another with --base.")
    if _PIP.search(text):
        return LauncherError(
            f"The image's packages cannot be installed: {_line(lines, _PIP)}.",
            "If packages come from your own index, pass its configuration after --; the top of docker/Dockerfile shows "
            "how.",
        )
    if not pushing and _NO_BASE.search(text):
        return LauncherError(
            f"The base image {context.base} cannot be pulled: {_line(lines, _NO_BASE)}.",
            "Choose one that this machine can pull, with --base.",
        )
    reported = f": {lines[-1]}" if lines else ""
    return LauncherError(f"{' '.join(command[:2])} failed with exit code {code}{reported}")


def _line(lines: Sequence[str], pattern: re.Pattern[str]) -> str:
    """Return the last line that matches, without the tool's prefix."""
    line = next(line for line in reversed(lines) if pattern.search(line))
    return re.sub(r"^(#\d+ )?(\d+\.\d+ )?(ERROR|Error|error): ", "", line.strip()).rstrip(".")


def _login(host: str, tool: Tool) -> str:
    if tool.name == "gcloud":
        return "gcloud auth login"
    if tool.name == "docker" and host.endswith(("-docker.pkg.dev", "gcr.io")):
        return f"gcloud auth configure-docker {host}"
    return f"{tool.name} login {host}"
