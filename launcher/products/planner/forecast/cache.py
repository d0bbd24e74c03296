"""The cache of compiled programs, in the user's cache folder. Each program is one file, written atomically.

A compile that fails or is interrupted leaves no file. A damaged file counts as missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import LauncherError
from launcher.products.planner.forecast import program
from launcher.products.planner.forecast.program import DamagedProgram, Program
from launcher.products.planner.forecast.request import Request

LIMIT_BYTES = 512 << 20
"""The maximum size of all entries together. The least recently used entries are removed first."""
_LOOK_SECONDS = 0.2


def folder() -> Path:
    """Return the cache folder: `forecast` in $SLIPWAY_CACHE, or in `slipway` in the user's cache folder."""
    given = os.environ.get("SLIPWAY_CACHE")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slipway"
    return base.expanduser().absolute() / "forecast"


@dataclass(frozen=True)
class Cache:
    folder: Path
    limit: int = LIMIT_BYTES

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def get(self, request: Request, warn: Callable[[str], None] = lambda _: None) -> Program | None:
        """Return the request's program, or None. A damaged entry is reported to `warn` and counts as missing."""
        path = self.path(request.key)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            warn(f"The cached forecast {path} cannot be read: {error.strerror}. It is computed again.")
            return None
        try:
            entry = json.loads(text)
            if not isinstance(entry, dict) or entry.get("key") != request.key:
                raise DamagedProgram("it belongs to another config")
            compiled = program.read(entry.get("program"))
        except (ValueError, RecursionError) as error:
            warn(f"The cached forecast {path} is damaged ({error}). It is computed again.")
            return None
        with contextlib.suppress(OSError):  # a read-only cache also works
            os.utime(path)
        return compiled

    def put(self, request: Request, compiled: Program) -> None:
        """Store the program atomically, then evict old entries. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        entry = {"key": request.key, "config": request.config, "program": compiled.raw}
        draft = self.folder / f".{request.key}.{uuid.uuid4().hex[:12]}"
        try:
            draft.write_text(json.dumps(entry), encoding="utf-8")
            draft.replace(self.path(request.key))
        finally:
            draft.unlink(missing_ok=True)
        self._replace_attempt()

    @contextlib.contextmanager
    def locked(self, key: str, waiting: Callable[[], None]) -> Iterator[None]:
        """Allow one process at a time to compile a key. Call `waiting` once if another process holds the lock.

        The lock is a kernel lock: it is released when the process that holds it ends, for any reason. Raises
        LauncherError if the folder is not writable.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{key}.lock"
            reported = False
            while True:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if _is(path, file):
                        break
                    os.close(file)  # the previous holder has removed the file
                except BlockingIOError:
                    os.close(file)
                    if not reported:
                        waiting()
                    reported = True
                    time.sleep(_LOOK_SECONDS)
                except BaseException:
                    os.close(file)
                    raise
        except OSError as error:
            raise LauncherError(
                f"The forecast cache {self.folder} cannot be written to: {error.strerror}.",
                "Set SLIPWAY_CACHE to another folder.",
            ) from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(file)

    def _replace_attempt(self) -> None:
        entries = []
        now = time.time()
        for path in self.folder.glob("*.json"):
            with contextlib.suppress(OSError):  # another process may evict entries at the same time
                stat = path.stat()
                entries.append((stat.st_mtime, stat.st_size, path))
        for path in self.folder.glob(".*"):  # drafts of processes that were killed while they wrote
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > 3600:
                    path.unlink()
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries)[:-1]:  # the newest entry stays, even if it exceeds the limit
            if total <= self.limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


def _is(path: Path, file: int) -> bool:
    """Return whether the open file is the one that currently has this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False
