"""Read the log of a local run while it grows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

_CHUNK_BYTES = 1 << 16


class LogFile:
    """A log file and the position up to which it has been read. The file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""  # the start of a line whose end is not written yet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def new_lines(self, *, last: bool) -> Iterator[str]:
        """Yield the lines that were written since the last call; with `last`, an incomplete line at the end, too."""
        file = self._open()
        while file is not None and (chunk := file.read(_CHUNK_BYTES)):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)
        if last and self._rest:
            yield self._rest.decode("utf-8", "replace")

    def older_than(self, time: float | None) -> bool:
        """Return whether the log was last written before `time`, in seconds since 1970. If so, skip what it has."""
        file = self._open()
        if time is None or file is None or os.fstat(file.fileno()).st_mtime >= time:
            return False
        file.seek(0, os.SEEK_END)
        return True

    def _open(self) -> BinaryIO | None:
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return None
        return self._file
