"""The Python distribution that contains the launcher: its name on PyPI, its version, and how to install an extra."""

from __future__ import annotations

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


def install(extra: str) -> str:
    """Return the command that adds an extra to the environment of this launcher, with the tool that made it."""
    wanted = f'"{NAME}[{extra}]"'
    environment = Path(sys.prefix)
    if (environment / "uv-receipt.toml").is_file():
        return f"uv tool install {wanted}"
    if (environment / "pipx_metadata.json").is_file():
        return f"pipx install --force {wanted}"
    return f"pip install {wanted}"
