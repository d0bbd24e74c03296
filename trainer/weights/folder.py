"""A folder that appears under its name only when it is whole."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer.errors import ConfigError

RECORD = "slipway.json"
SCHEMA = 1
_ABANDONED_SECONDS = 3600.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def complete(destination: Path, needed: int) -> Iterator[Path]:
    """Yield a temporary folder next to `destination`, and rename it to that at the end. After an error, remove it.

    `needed` is the number of bytes that will be written. Raises ConfigError if the disk is too small or full, or if
    the folder cannot be created.
    """
    parent = destination.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(destination)
        free = shutil.disk_usage(parent).free
        if free < needed:
            raise ConfigError(
                f"{_space(needed, free, destination)} Free space there, or choose another folder with --to."
            )
        draft = parent / f".{destination.name}.partial-{socket.gethostname()}-{os.getpid()}"
        draft.mkdir()
    except OSError as error:
        raise ConfigError(f"Cannot write to {parent}: {error.strerror}; choose another folder with --to.") from error
    try:
        yield draft
        _sync(draft)
        if destination.is_dir() and not any(destination.iterdir()):
            destination.rmdir()
        draft.rename(destination)
        _sync_folder(parent)
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if _is_full(error):
            free = shutil.disk_usage(parent).free
            raise ConfigError(f"{_space(needed, free, destination)} Free space there and start again.") from error
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise ConfigError(f"Another process has created {destination}; choose another folder with --to.") from error
        raise


def _is_full(error: BaseException) -> bool:
    """Return whether the disk is full. TensorStore and the tokenizers' library report it as text."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    return any(os.strerror(number) in str(error) for number in _FULL)


def _space(needed: int, free: int, destination: Path) -> str:
    return (
        f"Not enough disk space for {destination}: {needed / 1e6:,.1f} MB needed, {free / 1e6:,.1f} MB free on "
        f"{destination.parent}."
    )


def _remove_abandoned(destination: Path) -> None:
    """Remove the temporary folders of processes that ended before their end: killed ones of this host, and those of
    other hosts (pods) in which nothing changed for an hour."""
    prefix = f".{destination.name}.partial-"
    mine = f"{prefix}{socket.gethostname()}-"
    for path in destination.parent.glob(f"{prefix}*"):
        if path.name.startswith(mine) and path.name.removeprefix(mine).isdigit():
            pid = int(path.name.removeprefix(mine))
            # A restarted container has the process id of its predecessor.
            abandoned = pid == os.getpid() or not _alive(pid)
        else:
            newest = max((each.stat().st_mtime for each in (path, *path.rglob("*"))), default=0)
            abandoned = time.time() - newest > _ABANDONED_SECONDS
        if abandoned:
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    """Return whether a process exists and has not ended. A container may keep ended ones (zombies)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):  # it has ended now, or this is not Linux: the next start removes its folder
        return True


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            _sync_folder(path)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some network file systems have no fsync of a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write slipway.json: the record, and the sizes of all files of the folder."""
    files = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
    text = json.dumps({"schema": SCHEMA, **record, "files": files}, indent=2)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def existing(destination: Path, record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the record of a whole folder that `record` describes too, or None if there is no folder (or an empty one).

    Raises ConfigError for any other folder.
    """
    if not destination.exists():
        return None
    if not destination.is_dir():
        raise ConfigError(f"{destination} is a file; choose another folder with --to.")
    if not any(destination.iterdir()):
        return None
    try:
        stored: dict[str, Any] = json.loads((destination / RECORD).read_text(encoding="utf-8"))
        differing = [key for key, value in {"schema": SCHEMA, **record}.items() if stored.get(key) != value]
        files = dict(stored["files"])
        missing = [
            name
            for name, size in files.items()
            if not (destination / name).is_file() or (destination / name).stat().st_size != size
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{destination} already exists and has no valid {RECORD}; remove it, or choose another folder with --to."
        ) from error
    if differing:
        raise ConfigError(
            f"{destination} already exists, with another {differing[0]} ({stored.get(differing[0])}); "
            "remove it, or choose another folder with --to."
        )
    if missing:
        raise ConfigError(
            f"{destination} already exists but is not whole: {missing[0]} is missing or has another size; remove it."
        )
    return stored
