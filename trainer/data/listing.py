"""From the values to files: folders, globs, data sets of the hub, and the sources of the standard library."""

from __future__ import annotations

import fnmatch
import os
import sysconfig
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from trainer import hub
from trainer.data.units import SUFFIXES, raise_passing, suffix
from trainer.errors import ConfigError

_LISTED = 5
_COMPRESSED = {".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip"}
_LINK = "linked folder"
_FOLDERS = {"folder", _LINK}
_LFS = b"version https://git-lfs.github.com/spec/"


def standard_library(name: str) -> list[str]:
    """List the Python standard library's own sources, with their docstrings: text that every machine has."""
    if name != "python":
        raise ConfigError(f'data.corpus: unknown corpus "{name}"; the only corpus on every machine is "python".')
    root = Path(sysconfig.get_path("stdlib"))
    found = sorted(
        str(path)
        for path in root.rglob("*.py")
        # Installed packages in its folder are not part of the library. Its tests contain intentionally invalid files.
        if not {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"} & set(path.parts)
    )
    return [path for path in found if _usable(Path(path))]


def _usable(path: Path) -> bool:
    """Return whether a standard library file exists, is not empty, and is UTF-8 (Python allows other encodings)."""
    try:
        return bool(path.read_bytes().decode("utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False


def expand(entries: Sequence[str], left: Counter[str], pins: hub.Pins, *, key: str) -> list[str]:
    """Expand files, folders (all files below, of the known kinds), globs and data sets to sorted unique absolute paths.

    Count in `left` the other files of folders and globs, by kind. A file with several paths has the first of them. Data
    sets of the hub are resolved once, into `pins`.
    """
    found: dict[str, str] = {}
    for entry in entries:
        if hub.is_hub(entry):
            found |= {path: path for path in hub.expand(entry, pins, key)}
            continue
        path = Path(os.path.expanduser(entry))  # noqa: PTH111 - Path.expanduser raises if there is no such user
        if any(character in entry for character in "*?[") and not path.exists():
            files = _matching(path, left, f'{key}: no file matches "{entry}"')
        elif _is_dir(path, key):
            files = _files_below(path, left, key)
        else:
            files = [str(path)]
        for name in files:
            _require_known_file(name, key)
            absolute = str(Path(name).absolute())
            if found.setdefault(real(name), absolute) != absolute:
                left["repeated"] += 1
    return sorted(found.values())


def real(path: str) -> str:
    """Return the path of a file without links; that of a file of the hub is returned as it is."""
    return path if hub.is_hub(path) else os.path.realpath(path)


def _matching(path: Path, left: Counter[str], message: str) -> list[str]:
    """Return the files that match a pattern, sorted. As in a shell, only a part of it that starts with a dot matches
    hidden files and folders. Raises ConfigError, which starts with `message`, if there are none."""
    anchor = Path(path.anchor or ".")
    pattern = path.relative_to(anchor)
    dotted = [part for part in pattern.parts if part.startswith(".")]
    files, others = [], Counter[str]()
    for match in anchor.glob(str(pattern)):
        parts = [part for part in match.relative_to(anchor).parts if part.startswith(".")]
        if not all(any(fnmatch.fnmatchcase(part, dot) for dot in dotted) for part in parts):
            others["hidden"] += 1
        elif match.is_dir():
            others["folder"] += "**" not in pattern.parts  # the others match what is below
        elif _is_empty(match):
            others["empty"] += 1
        else:
            files.append(str(match))
    if not files:
        why = f" ({left_out_of(+others, 0).rstrip('.')})" if +others else ""
        raise ConfigError(f"{message}{why}; check the pattern and the working directory.")
    left += others
    return sorted(files)


def _is_dir(path: Path, key: str) -> bool:
    try:
        if not path.exists():
            raise ConfigError(
                f"{key}: {path} does not exist; check the path (a relative path starts at the folder where you submit)."
            )
        return path.is_dir()
    except OSError as error:
        raise_passing(error)
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror}.") from error


def _files_below(folder: Path, left: Counter[str], key: str) -> list[str]:
    def refuse(error: OSError) -> None:
        raise_passing(error)
        raise ConfigError(f"{key}: cannot read the folder {error.filename}: {error.strerror}.") from error

    found = []
    others: Counter[str] = Counter()
    for parent, folders, names in folder.walk(on_error=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith("."):
                others["hidden"] += 1
            elif (ending := suffix(name)) not in SUFFIXES:
                others[_LINK if (parent / name).is_dir() else ending] += 1
            elif _is_empty(parent / name):
                others["empty"] += 1
            else:
                found.append(str(parent / name))
    left += others
    if not found:
        raise ConfigError(
            f"{key}: the folder {folder} has no {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file with text. "
            f"{left_out_of(others, 0)}".rstrip()
        )
    return sorted(found)


def _is_empty(path: Path) -> bool:
    """Return whether a file has no bytes; False if that is not known: an error names the file later."""
    try:
        if path.stat().st_size:
            return False
        return not _first_bytes(path, 1)  # files of the kernel have content and no size
    except OSError as error:
        raise_passing(error)
        return False


def _first_bytes(path: Path, count: int) -> bytes | None:
    """Return up to `count` bytes; None or b"" if there is none now, as in a pipe, which would wait for its writer."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        return file.read(count)


def left_out_of(left: Counter[str], read: int) -> str:
    """Return a sentence such as "2 files are read; 10 .gz files are left out."; "" if none is left out."""
    if not left:
        return ""
    kinds = [
        _counted(count, kind) for kind, count in sorted(left.items(), key=lambda item: (-item[1], item[0]))[:_LISTED]
    ]
    if more := sum(left.values()) - sum(count for _, count in left.most_common(_LISTED)):
        kinds.append(f"{more:,} others")
    those = f"{', '.join(kinds)} {'is' if left.total() == 1 else 'are'} left out."
    return f"{read:,} {_file(read)} {'is' if read == 1 else 'are'} read; {those}" if read else those


def _counted(count: int, kind: str) -> str:
    if kind in _FOLDERS:
        return f"{count:,} {kind}{'s' if count > 1 else ''}"
    return f"{count:,} {kind} {_file(count)}" if kind else f"{count:,} {_file(count)} without an ending"


def _file(count: int) -> str:
    return "file" if count == 1 else "files"


def _require_known_file(name: str, key: str) -> None:
    if (ending := suffix(name)) not in SUFFIXES:
        how = " It is compressed; decompress it." if ending in _COMPRESSED else ""
        raise ConfigError(f"{key}: {name} is not a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file.{how}")
    try:
        start = _first_bytes(Path(name), len(_LFS))
    except OSError as error:
        raise_passing(error)
        raise ConfigError(f"{key}: cannot read {name}: {error.strerror}.") from error
    if not start:
        raise ConfigError(f"{key}: {name} is empty; remove it from {key} or fill it.")
    if start == _LFS:
        raise ConfigError(
            f"{key}: {name} is a pointer of Git LFS, not the file itself; run git lfs pull in its repository."
        )
