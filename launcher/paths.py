"""Locations of Slipway's own files: next to the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from launcher.errors import LauncherError, UsageError

_PACKAGE = Path(__file__).resolve().parent

CHARTS = ("queues", "ray-cluster", "serve")
"""The charts that are installed as releases. A run is not a release."""


@cache
def _data(name: str) -> Path:
    """Return the folder `name` from the wheel if it contains the folder, otherwise from the checkout."""
    packed = _PACKAGE / "_data" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name


def charts_dir() -> Path:
    """Return the folder of the charts: common, queues, ray-cluster, run, serve."""
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

    `quickstart`, `quickstart.yaml` and `values/quickstart.yaml` all find the preset. Raises UsageError if neither
    exists.
    """
    if not name.strip():
        raise UsageError(
            '-f "" is not a valid file name; give a values file, or the name of a preset such as quickstart.'
        )
    if "://" in name:
        download = f"gcloud storage cp {name} ." if name.startswith("gs://") else f"curl -LO {name}"
        raise UsageError(
            f"-f {name} is a URL, but values files are read from this machine.", f"Download it first: {download}"
        )
    path = Path(name).expanduser()
    try:
        if path.exists():
            return path
    except OSError as error:  # no permission for a folder, or the name is too long
        raise LauncherError(f'The values file "{name}" cannot be read: {error.strerror}.') from error
    wanted = name.removeprefix("./").removeprefix("values/").removesuffix(".yaml")
    if wanted in (known := presets()):
        preset = presets_dir() / f"{wanted}.yaml"
        return preset.relative_to(Path.cwd()) if preset.is_relative_to(Path.cwd()) else preset
    if "=" in name:  # as in the commands of MaxText
        raise UsageError(f'The values file "{name}" was not found.', f"To set a value: --set {name}")
    there = {each.stem: each for each in path.parent.glob("*.y*ml")}
    if near := get_close_matches(path.name.partition(".")[0], there, n=1, cutoff=0.8):
        raise UsageError(f'The values file "{name}" was not found. Did you mean {there[near[0]]}?')
    raise UsageError(
        f'The values file "{name}" was not found, neither here nor among the presets.{_guess(wanted, known)}',
        "launcher presets lists the presets.",
    )


def _guess(wanted: str, known: Sequence[str]) -> str:
    """Return a question that names at most three presets: those of the folder `wanted`, or those with similar names."""
    near = [name for name in known if name.startswith(f"{wanted.rstrip('/')}/")]
    if not near:
        last = wanted.rpartition("/")[2]
        by_last = {name.rpartition("/")[2]: name for name in known}
        near = get_close_matches(wanted, known) + [by_last[each] for each in get_close_matches(last, by_last)]
        near += [name for name in known if len(last) > 2 and last in name]
    near = list(dict.fromkeys(near))[:3]
    listed = " or ".join(filter(None, [", ".join(near[:-1]), near[-1]])) if near else ""
    return f" Did you mean the preset{'s' * (len(near) > 1)} {listed}?" if near else ""
