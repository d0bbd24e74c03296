"""Locations of Slipway's own files: next to the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from launcher.errors import LauncherError

_PACKAGE = Path(__file__).resolve().parent


def _data(name: str) -> Path:
    """Return the folder `name` from the wheel if it contains the folder, otherwise from the checkout."""
    packed = _PACKAGE / "_data" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name


def charts_dir() -> Path:
    """Return the folder of the charts: common, queues, ray-cluster, run."""
    return _data("charts")


def presets_dir() -> Path:
    """Return the folder of preset values files; `-f` searches it for files that are not in the current folder."""
    return _data("values")


def docker_dir() -> Path:
    """Return the folder of the image's Dockerfile and package lists."""
    return _data("docker")


def trainer_dir() -> Path:
    """Return the folder of the package that runs in the image: next to launcher in a checkout and in a wheel."""
    return _PACKAGE.parent / "trainer"


def home() -> Path:
    """Return the folder of this user's Slipway files: $SLIPWAY_HOME, or ~/.slipway."""
    return Path(os.environ.get("SLIPWAY_HOME") or Path.home() / ".slipway").expanduser().absolute()


def presets() -> list[str]:
    """Return the names of all presets, as `-f` accepts them: "quickstart", "models/llama3-8b" …"""
    folder = presets_dir()
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def find_values_file(name: str) -> Path:
    """Return the values file for `-f NAME`: the path itself if it exists, otherwise the preset of that name.

    `quickstart`, `quickstart.yaml` and `values/quickstart.yaml` all find the preset. Raises LauncherError
    if neither exists.
    """
    if not name.strip():
        raise LauncherError(
            '-f "" is not a valid file name; give a values file, or the name of a preset such as quickstart.'
        )
    path = Path(name).expanduser()
    try:
        if path.exists():
            return path
    except OSError as error:  # no permission for a folder, or the name is too long
        raise LauncherError(f'The values file "{name}" cannot be read: {error.strerror}.') from error
    wanted = name.removeprefix("./").removeprefix("values/").removesuffix(".yaml")
    known = presets()
    if wanted in known:
        found = presets_dir() / f"{wanted}.yaml"
        return found.relative_to(Path.cwd()) if found.is_relative_to(Path.cwd()) else found
    near = get_close_matches(wanted, known, n=1)
    guess = f' Did you mean the preset "{near[0]}"?' if near else ""
    raise LauncherError(f'The values file "{name}" was not found, neither here nor among the presets.{guess}')
