"""The output of a run in its folder: logs/ATTEMPT/SOURCE.START.NUMBER.log.gz, as trainer/log_keeper.py writes it.

Others wrote these files: a damaged, truncated or huge one costs its own lines only.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from launcher.backends.log_excerpt import Excerpt
from launcher.errors import LauncherError
from launcher.products.common.storage import is_url, list_bucket, read_bucket

FOLDER = "logs"
DRIVER = "driver"
_NAME = re.compile(r"(?P<attempt>\d{1,6})/(?P<source>[a-z0-9-]+)\.(?P<start>[0-9TZ.]+)\.(?P<number>\d{6})\.log\.gz")
_STAMP = re.compile(r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6})Z (?P<text>.*)", re.DOTALL)
_CHUNK = 1 << 20
_LONGEST_FILE = 64 << 20
"""The bytes of text that are read of one file. The trainer writes about 1 MiB of compressed text into one."""


@dataclass(frozen=True, order=True)
class LogPart:
    """A file: its `start` is the time when its process began, its `number` counts the files since then, from 1."""

    attempt: int
    source: str
    start: str
    number: int
    path: str


@dataclass(frozen=True)
class Line:
    """A line and the time when it was read, in UTC; "" for a sentence about lines that are missing."""

    stamp: str
    text: str


class StoredLogs:
    """The files in the folder of one run. `folder` is a path, or the URL of a bucket's folder."""

    def __init__(self, folder: str) -> None:
        """List the files. Raises LauncherError if the folder cannot be read."""
        self.folder = folder.rstrip("/")
        self.parts = sorted(part for name in _names(self.folder) if (part := _part(name)) is not None)

    @property
    def attempts(self) -> list[int]:
        return sorted({part.attempt for part in self.parts})

    def sources(self, attempt: int) -> list[str]:
        """Return "driver" and the hosts ("host-0") of an attempt, in their order."""
        names = {part.source for part in self.parts if part.attempt == attempt}
        return sorted(names, key=lambda name: (name != DRIVER, len(name), name))

    def excerpt(self, attempt: int, worker: int | None, excerpt: Excerpt, *, since: str = "") -> Iterator[str]:
        """Yield the lines of the whole run, or of one worker. `since` is the time at which the attempt was created.

        Raises LauncherError if the attempt has no such worker, or if a file cannot be read.
        """
        sources = self.sources(attempt)
        source = DRIVER if DRIVER in sources else "host-0"
        only = ""
        if worker is not None:
            hosts = [name for name in sources if name != DRIVER]
            if hosts and f"host-{worker}" not in hosts:
                raise LauncherError(f"Worker {worker} was not found: the run has {len(hosts)}, counted from 0.")
            if hosts:
                source = f"host-{worker}"
            else:
                only = f"(host {worker}) "  # the driver of run.command prints the output of all hosts
        parts = [part for part in self.parts if (part.attempt, part.source) == (attempt, source)]
        # A run that was deleted and submitted again counts its attempts from 1. The clocks of the machines may differ.
        parts = [part for part in parts if not since or part.start >= since] or parts
        begin = "" if excerpt.since is None else f"{datetime.fromtimestamp(excerpt.since, UTC):%Y-%m-%dT%H:%M:%S.%f}"
        if begin or excerpt.tail is not None:
            yield from self._end(parts, begin, excerpt.tail, only)
            return
        for line in self.lines(parts):
            if line.text.startswith(only):
                yield line.text

    def _end(self, parts: Sequence[LogPart], begin: str, tail: int | None, only: str) -> deque[str]:
        """Return the last lines since `begin`. Reads the files from the last one, and only as many as it needs."""
        kept: deque[str] = deque(maxlen=tail)
        later = ("", "")  # the start and the first line of the file that was read before
        for part in reversed(parts):
            lines = list(self.lines([part]))
            if part.start == later[0]:  # a repeated write has lines in both files
                lines = [line for line in lines if line.stamp < later[1]]
            later = (part.start, next((line.stamp for line in lines if line.stamp), later[1]))
            new = [line.text for line in lines if line.stamp >= begin and line.text.startswith(only)]
            room = len(new) if tail is None else tail - len(kept)
            kept.extendleft(reversed(new[max(0, len(new) - room) :]))
            if len(kept) == tail or (lines and lines[0].stamp < begin):
                break
        return kept

    def lines(self, parts: Sequence[LogPart]) -> Iterator[Line]:
        """Yield the lines of files of one source, in their order. Lines that a repeated write has twice appear once."""
        last, before = "", None
        for part in parts:
            if before is None or part.start != before.start:
                last = ""
            elif part.number > before.number + 1:
                removed = part.number - before.number - 1
                yield Line("", f"({removed} files of output are missing here: the log reached storage.logs.size.)")
            before = part
            for line in _lines(part, self._read(part)):
                if line.stamp > last or not line.stamp:
                    last = line.stamp or last
                    yield line

    def download(self, into: Path, say: Callable[[str], None]) -> list[Path]:
        """Write each source of each attempt as text with times: ATTEMPT/SOURCE.log. Raises LauncherError."""
        written = []
        for attempt in self.attempts:
            for source in self.sources(attempt):
                path = into / str(attempt) / f"{source}.log"
                parts = [part for part in self.parts if (part.attempt, part.source) == (attempt, source)]
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("w", encoding="utf-8", errors="replace") as file:
                        for line in self.lines(parts):
                            file.write(f"{line.stamp}Z {line.text}\n" if line.stamp else f"{line.text}\n")
                except OSError as error:
                    raise LauncherError(f"{path} cannot be written: {error.strerror}.") from error
                written.append(path)
                say(f"Wrote {path}.")
        return written

    def _read(self, part: LogPart) -> bytes:
        if is_url(self.folder):
            return read_bucket(f"{self.folder}/{FOLDER}", [part.path]).get(part.path, b"")
        try:
            return (Path(self.folder) / FOLDER / part.path).read_bytes()
        except FileNotFoundError:  # removed meanwhile, because the log reached its limit
            return b""
        except OSError as error:
            raise LauncherError(f"{error.filename} cannot be read: {error.strerror}.") from error


def _names(folder: str) -> list[str]:
    if is_url(folder):
        read_bucket(folder, ["run.json"])  # has a timeout, and raises the reason why a bucket cannot be read
        return list(list_bucket(f"{folder}/{FOLDER}"))
    root = Path(folder, FOLDER)
    try:
        if not Path(folder).is_dir():
            raise LauncherError(f"The folder {folder} does not exist.")
        return [str(path.relative_to(root)) for path in root.glob("*/*.log.gz")]
    except OSError as error:
        raise LauncherError(f"{root} cannot be read: {error.strerror}.") from error


def _part(name: str) -> LogPart | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return LogPart(int(match["attempt"]), match["source"], match["start"], int(match["number"]), name)


def _lines(part: LogPart, packed: bytes) -> Iterator[Line]:
    """Yield the lines of a file. A kill during a write truncates the last one; other damage yields a sentence."""
    rest, total = b"", 0
    try:
        for text in _unpacked(packed):
            total += len(text)
            *whole, rest = (rest + text).split(b"\n")
            yield from map(_line, whole)
            if total > _LONGEST_FILE:
                yield Line("", f"({part.path} has more than {_LONGEST_FILE >> 20} MiB of text: the rest is left out.)")
                return
    except zlib.error:
        yield Line("", f"({part.path} is damaged: the rest of it is left out.)")


def _unpacked(packed: bytes) -> Iterator[bytes]:
    """Yield the text of consecutive gzip members, in pieces."""
    while packed:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            text = member.decompress(packed, _CHUNK)
            packed = member.unconsumed_tail
            yield text
            if not text and not packed:
                break
        packed = member.unused_data


def _line(raw: bytes) -> Line:
    text = raw.decode("utf-8", "replace")
    match = _STAMP.fullmatch(text)
    return Line(match["stamp"], match["text"]) if match else Line("", text)
