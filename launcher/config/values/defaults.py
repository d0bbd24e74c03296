"""The values files that come before every -f: the user's, the project's, and those in SLIPWAY_VALUES."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from launcher.errors import UsageError
from launcher.paths import find_values_file

FILE = "launcher.yaml"
OFF = "SLIPWAY_NO_DEFAULTS"
MORE = "SLIPWAY_VALUES"
_TRUSTED = frozenset({0})  # root can change every file anyway


def default_files(warn: Callable[[str], None] = lambda _: None) -> list[str]:
    """Return the default values files that exist, in the order in which they are merged, as `-f` accepts them.

    `warn` receives a sentence if a project's file is ignored because another user may have written it. A missing file
    of SLIPWAY_VALUES raises UsageError. The list is empty if SLIPWAY_NO_DEFAULTS is set.
    """
    if os.environ.get(OFF):
        return []
    files = [str(file) for file in (user_file(), _project_file(warn)) if file is not None and file.is_file()]
    for name in filter(None, os.environ.get(MORE, "").split(os.pathsep)):
        try:
            files.append(str(find_values_file(name)))
        except UsageError as error:
            raise UsageError(f"{MORE}: {error.message}", error.hint) from error
    return list(dict.fromkeys(files))


def user_file() -> Path:
    """Return the path of this user's default values file, which may not exist."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base).expanduser() / "slipway" / FILE


def _project_file(warn: Callable[[str], None]) -> Path | None:
    """Return the file of the current folder, or of its nearest parent that has one, relative to the current folder."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder was removed
        return None
    for level, folder in enumerate((here, *here.parents)):
        file = folder / FILE
        if os.path.lexists(file):
            if not file.exists():
                warn(f"Warning: {file} is ignored: it is a link to a file that does not exist.")
                return None
            reason = _writable_by_others(file)
            if reason:
                warn(f"Warning: {file} is ignored, because {reason}. To use it, name it with -f.")
                return None
            return Path(*[os.pardir] * level, FILE)
    return None


def _writable_by_others(file: Path) -> str:
    """Return why another user can choose the content of the file, or "".

    Values can name programs to run (run.command). So a file is used only if this user or root owns it and its folder,
    as in Git (safe.directory), or if the folder is one like /tmp, in which users cannot replace each other's files.
    """
    trusted = _TRUSTED | {os.geteuid()}
    link, folder = file.lstat(), file.parent.stat()
    target = file.stat()
    if not {link.st_uid, target.st_uid} <= trusted:
        return "it belongs to another user"
    if target.st_mode & stat.S_IWOTH:
        return "every user can write to it"
    if folder.st_uid not in trusted:
        return "its folder belongs to another user"
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        return "every user can write to its folder"
    return ""
