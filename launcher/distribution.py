"""The Python distribution that contains the launcher: its name on PyPI, its version, and how to install an extra."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "slipway-launcher"


def version() -> str | None:
    """Return the installed version, or None in a checkout that is not installed."""
    import importlib.metadata

    try:
        return importlib.metadata.version(NAME)
    except importlib.metadata.PackageNotFoundError:
        return None


def command() -> str:
    """Return the word that starts this launcher in the user's shell: "launcher", or its path if it is not on PATH."""
    started = Path(sys.argv[0])
    if started.name != "launcher":  # python -m launcher, or a program that uses the API
        return "launcher"
    on_path = shutil.which("launcher")
    if on_path is not None and Path(on_path).exists() and started.exists() and Path(on_path).samefile(started):
        return "launcher"
    path = os.path.relpath(started)
    if path.startswith(os.pardir):
        path = str(started.absolute())
    return shlex.quote(path if os.sep in path else f"./{path}")


def install(extra: str) -> str:
    """Return the command that adds an extra to the environment of this launcher, with the tool that made it."""
    wanted = f'"{NAME}[{extra}]"'
    environment = Path(sys.prefix)
    if (environment / "uv-receipt.toml").is_file():
        return f"uv tool install {wanted}"
    if (environment / "pipx_metadata.json").is_file():
        return f"pipx install --force {wanted}"
    return f"pip install {wanted}"
