"""The version of a release: the Python package and all charts have the same one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_LINE = {".toml": re.compile(r'(?m)^(version = ")([^"]*)(")$'), ".yaml": re.compile(r"(?m)^(version: )(\S+)()$")}


class ReleaseError(Exception):
    """A release is not possible. The text is a sentence for the maintainer."""


def files(root: Path) -> list[Path]:
    """Return the files that contain the version: pyproject.toml, and each Chart.yaml, also those of copied charts."""
    charts = {file.resolve() for file in (root / "charts").rglob("Chart.yaml")}
    return [root / "pyproject.toml", *sorted(charts)]


def read(file: Path) -> str:
    """Return the version in a file of `files`."""
    match = _LINE[file.suffix].search(file.read_text(encoding="utf-8"))
    if match is None:
        raise ReleaseError(f"{file} has no version.")
    return match[2]


def write(root: Path, version: str) -> None:
    """Write the version into all files of `files`."""
    for file in files(root):
        text = _LINE[file.suffix].sub(rf"\g<1>{version}\g<3>", file.read_text(encoding="utf-8"), count=1)
        file.write_text(text, encoding="utf-8")


def check_step(root: Path, version: str) -> None:
    """Raise ReleaseError if the version is not valid, or not higher than the last release and all charts."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f'"{version}" is not a valid version of a release; give three numbers: VERSION=1.2.3.')
    tags = _git(root, "tag", "--list", "v*").splitlines()
    released = [tag.removeprefix("v") for tag in tags if _VERSION.fullmatch(tag.removeprefix("v"))]
    for other in released:
        if _order(version) <= _order(other) and version != other:
            raise ReleaseError(f"{version} is not higher than the released version {other}.")
    # Changes to a chart raise its version between releases, so the next release may have to skip some versions.
    for file in files(root):
        if _order(read(file)) > _order(version):
            raise ReleaseError(f"{file.relative_to(root)} already has version {read(file)}, higher than {version}.")


def check_in_step(root: Path, version: str) -> None:
    """Raise ReleaseError if one of the files has another version."""
    for file in files(root):
        if (found := read(file)) != version:
            raise ReleaseError(
                f"CHANGELOG.md has a section {version}, but {file.relative_to(root)} has version {found}. "
                f"Remove the section to prepare the release again."
            )


def check_clean(root: Path) -> None:
    """Raise ReleaseError if the checkout has changes that no commit has."""
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:3]) + (", …" if len(changed) > 3 else "")
        raise ReleaseError(f"The checkout has changes that are not committed: {names}. Commit them, or remove them.")


def _order(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout
