"""Records of the models that `launcher serve` serves on this machine, by which `launcher chat` finds them.

A record is a file that only this user can read, because it has the API key. The server holds a lock on it while it
runs, so the record of a server that was killed has no lock, and is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from launcher import paths
from launcher.errors import LauncherError
from launcher.json_object import json_object

_LOCK_SECONDS = 1.0  # a reader holds the lock for less


@dataclass(frozen=True)
class Record:
    """A model that is served: its name in requests, the URL without /v1, and the API key."""

    model: str
    url: str
    key: str


class Reservation:
    """The name of a model, which no other server of this user can use at the same time."""

    def __init__(self, file: int) -> None:
        self._file = file

    def write(self, record: Record) -> None:
        """Publish the record: from now on, `find` returns it."""
        os.pwrite(self._file, json.dumps(asdict(record)).encode(), 0)


@contextlib.contextmanager
def reserve(model: str) -> Iterator[Reservation]:
    """Reserve the name, and remove its record at the end. Raises LauncherError if a model of this name is served."""
    path = _path(model)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    deadline = time.monotonic() + _LOCK_SECONDS
    while (file := _lock(path, os.O_RDWR | os.O_CREAT)) is None:
        if time.monotonic() > deadline:
            raise LauncherError(
                f"A model of the name {model} is already served on this machine.",
                "Stop the other server, or serve this model under another name: --name NAME",
            )
        time.sleep(0.05)
    try:
        os.truncate(file, 0)  # what a server that was killed wrote
        yield Reservation(file)
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def find(model: str) -> Record | None:
    """Return the record of a model that is served and ready; None if there is none."""
    path = _path(model)
    try:
        file = _lock(path, os.O_RDWR)
        if file is not None:
            path.unlink(missing_ok=True)
            os.close(file)
            return None
        entry = json_object(path.read_bytes()) or {}
    except FileNotFoundError:
        return None
    try:
        return Record(**entry)
    except TypeError:  # the server is not ready
        return None


def names() -> list[str]:
    """Return the names of all models that are served on this machine and ready."""
    folder = _path("model").parent
    recorded = [unquote(path.stem) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    return [name for name in recorded if find(name) is not None]


def _path(model: str) -> Path:
    return paths.home() / "serve" / f"{quote(model, safe='')}.json"


def _lock(path: Path, flags: int) -> int | None:
    """Open and lock the file; None if another process has the lock. Raises FileNotFoundError without O_CREAT."""
    while True:
        file = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        # Another process may have removed the file before it was locked.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)
        if not flags & os.O_CREAT:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
