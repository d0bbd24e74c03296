"""Where Slipway's own files live: in a checkout beside the package, in an installed wheel inside it."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from launcher.errors import LauncherError

_PACKAGE = Path(__file__).resolve().parent


def _data(name: str) -> Path:
    """The folder `name`: of the wheel where the wheel carries it, else of the checkout."""
    packed = _PACKAGE / "_data" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name


def charts_dir() -> Path:
    """The folder that holds the charts: common, queues, ray-cluster, run."""
    return _data("charts")


def presets_dir() -> Path:
    """The folder of values files that people overlay; `-f` looks here for what is not in the current folder."""
    return _data("values")


def docker_dir() -> Path:
    """The folder that holds the image's Dockerfile and the lists of its packages."""
    return _data("docker")


def trainer_dir() -> Path:
    """The package that runs in the image; in a checkout and in an installed wheel it is launcher's neighbour."""
    return _PACKAGE.parent / "trainer"


def home() -> Path:
    """Where Slipway keeps what belongs to this user: $SLIPWAY_HOME, or ~/.slipway."""
    return Path(os.environ.get("SLIPWAY_HOME") or Path.home() / ".slipway").expanduser().absolute()


def presets() -> list[str]:
    """The names of all presets, as `-f` takes them: "quickstart", "models/llama3-8b" …"""
    folder = presets_dir()
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def find_values_file(name: str) -> Path:
    """The values file that `-f NAME` means: the path itself, else a preset of that name.

    `quickstart`, `quickstart.yaml` and `values/quickstart.yaml` all find the preset. Raises LauncherError
    where there is neither.
    """
    if not name.strip():
        raise LauncherError('-f "" names no file; give a values file, or the name of a preset such as quickstart.')
    path = Path(name).expanduser()
    try:
        if path.exists():
            return path
    except OSError as error:  # a folder without permission, a name that is too long
        raise LauncherError(f'The values file "{name}" cannot be read: {error.strerror}.') from error
    wanted = name.removeprefix("./").removeprefix("values/").removesuffix(".yaml")
    known = presets()
    if wanted in known:
        found = presets_dir() / f"{wanted}.yaml"
        return found.relative_to(Path.cwd()) if found.is_relative_to(Path.cwd()) else found
    near = get_close_matches(wanted, known, n=1)
    guess = f' Did you mean the preset "{near[0]}"?' if near else ""
    raise LauncherError(f'There is no values file "{name}", neither here nor among the presets.{guess}')
