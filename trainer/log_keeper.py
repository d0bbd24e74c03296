"""The process that keeps the output of a run in its folder in storage: logs/ATTEMPT/SOURCE.START.NUMBER.log.gz.

It reads lines from a pipe, or from the files to which Ray writes the output of a worker. One thread reads, another
writes: storage that is slow, full or hung delays neither the training, which is another process, nor its end. Lines
that storage does not take in time wait in a bounded buffer. Then the oldest are left out, and a line states how many.

Each line has the time at which it was read, as in `kubectl logs --timestamps`. A file is a sequence of complete gzip
members, one for each write, so that a kill loses the last seconds only, and zcat reads the rest. The times of one
START only increase: a reader drops a line that a repeated write has twice.

It imports only the standard library and is run by its path, so that it starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

FOLDER = "logs"
SUFFIX = ".log.gz"
_SEGMENT = 1 << 20
"""The bytes of a file at which the next one begins. gcsfuse uploads an object below 2 MB as a whole for an append."""
_BUFFER = 16 << 20
_LONGEST_LINE = 1 << 16
_LONGEST_PAUSE = 60.0
_SECONDS_UNTIL_REPORT = 30.0
_POLL_SECONDS = 0.25
SECONDS_TO_END = 10.0
"""How long the end of a run waits for the last lines to be in storage."""
_TICK = timedelta(microseconds=1)
_STAMP = len("2026-11-27T20:37:39.123456Z")


@dataclass(frozen=True)
class Settings:
    """What to keep: `folder` is that of the attempt, `size` the limit in bytes of the files of the source, `seconds`
    the time between two writes. With `pid`, the output is in `files`, patterns below the folder `session`, until that
    process ends; else it is on stdin, until its end."""

    folder: str
    source: str
    size: int
    seconds: float
    pid: int = 0
    session: str = ""
    files: tuple[str, ...] = ()


class Buffer:
    """The lines that wait for storage, with their times. One thread adds them, and another takes them."""

    def __init__(self, limit: int = _BUFFER) -> None:
        """`limit`: the bytes that it holds. If there are more, the oldest are left out."""
        self._lines: deque[bytes] = deque()
        self._limit, self._size, self._left_out = limit, 0, 0
        self._gap = b""  # the time of the last line that was left out
        self._last = datetime.fromtimestamp(0, UTC)
        self._lock = threading.Condition()
        self.ended = False
        self.lost = 0  # the number of lines that were left out

    def add(self, line: bytes) -> None:
        with self._lock:
            self._last = max(datetime.now(UTC), self._last + _TICK)
            entry = _stamp(self._last) + b" " + line + b"\n"
            self._lines.append(entry)
            self._size += len(entry)
            while self._size > self._limit:
                oldest = self._lines.popleft()
                self._gap = oldest[:_STAMP]
                self._size -= len(oldest)
                self._left_out += 1

    def end(self) -> None:
        with self._lock:
            self.ended = True
            self._lock.notify()

    def take(self, seconds: float) -> tuple[bytes, bool]:
        """Wait, return all lines, and whether they are the last. The first has the number of missing lines, if any."""
        self.wait(seconds)
        with self._lock:
            text = b"".join(self._lines)
            if self._left_out:
                text = self._gap + b" " + missing(self._left_out).encode() + b"\n" + text
                self.lost += self._left_out
            self._lines.clear()
            self._size = self._left_out = 0
            return text, self.ended

    def wait(self, seconds: float) -> None:
        """Wait, or return at once at the end of the output."""
        with self._lock:
            self._lock.wait_for(lambda: self.ended, seconds)

    @property
    def waiting(self) -> int:
        """The number of lines that were added and not taken."""
        with self._lock:
            return len(self._lines) + self._left_out


def missing(count: int) -> str:
    return f"({count} line{'s' if count > 1 else ''} of output are missing here: storage did not take them in time.)"


class Store:
    """The files of a source."""

    def __init__(self, settings: Settings) -> None:
        self._folder, self._source, self._limit = Path(settings.folder), settings.source, settings.size
        self._segment = min(_SEGMENT, max(1, settings.size // 4))
        self._start = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z"
        self._number = self._written = 0
        self._path = self._folder
        self._sizes: dict[str, int] | None = None

    def write(self, text: bytes) -> None:
        """Append the lines. Raises OSError; the next call then begins a new file, because the last may be damaged."""
        if self._sizes is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._sizes = dict(sorted(_sizes(self._folder, self._source)))
        if self._number == 0 or self._written >= self._segment:
            self._number += 1
            self._written = 0
            self._path = self._folder / f"{self._source}.{self._start}.{self._number:06d}{SUFFIX}"
        packed = gzip.compress(text, 6)
        try:
            # gcsfuse creates or changes the object when the file is closed.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                rest = packed
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            finally:
                os.close(descriptor)
        except OSError:
            self._written = self._segment
            raise
        self._written += len(packed)
        self._sizes[self._path.name] = self._sizes.get(self._path.name, 0) + len(packed)
        self._remove_oldest(self._sizes)

    def _remove_oldest(self, sizes: dict[str, int]) -> None:
        """Keep within the limit. The first file stays: it has the versions, the config and the start."""
        while sum(sizes.values()) > self._limit and len(sizes) > 2:
            oldest = list(sizes)[1]
            with contextlib.suppress(FileNotFoundError):
                (self._folder / oldest).unlink()
            del sizes[oldest]


def _sizes(folder: Path, source: str) -> Iterator[tuple[str, int]]:
    for entry in os.scandir(folder):
        if entry.name.startswith(f"{source}.") and entry.name.endswith(SUFFIX):
            yield entry.name, entry.stat().st_size


def _stamp(moment: datetime) -> bytes:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z".encode()


# --- the process -----------------------------------------------------------------------------------------------------


class _Writer:
    """The writing thread. Repeats a write that fails, less and less often."""

    def __init__(self, settings: Settings, buffer: Buffer) -> None:
        self._settings, self._buffer, self._store = settings, buffer, Store(settings)
        self._busy_since = 0.0
        self._reported = False
        self.unwritten = 0  # the lines of the write that is not finished
        self.done = threading.Event()
        threading.Thread(target=self._run, name="storage", daemon=True).start()

    def _run(self) -> None:
        ended = False
        while not ended:
            text, ended = self._buffer.take(self._settings.seconds)
            self.unwritten = text.count(b"\n")
            if text and not self._written(text):
                break
            self.unwritten = 0
        self.done.set()

    def _written(self, text: bytes) -> bool:
        """Write the lines, and repeat it until the output has ended. Meanwhile the buffer holds the later lines."""
        pause, failed_since = self._settings.seconds, time.monotonic()
        while True:
            try:
                self._busy_since = time.monotonic()
                self._store.write(text)
            except OSError as error:
                self._report(error.strerror or str(error))
            else:
                return True
            finally:
                self._busy_since = 0.0
            self._buffer.wait(pause)
            if self._buffer.ended:
                if time.monotonic() - failed_since > SECONDS_TO_END:
                    return False
                time.sleep(1)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def check(self) -> None:
        """Report storage that does not answer."""
        since = self._busy_since
        if since and time.monotonic() - since > _SECONDS_UNTIL_REPORT:
            self._report(f"it did not answer within {_SECONDS_UNTIL_REPORT:g} s")

    def _report(self, reason: str) -> None:
        if not self._reported:
            self._reported = True
            _say(f"The output cannot be written to {self._settings.folder}: {reason}. The run continues.")


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{sentence}\n".encode(errors="replace"))


class _Lines:
    """Splits output into lines."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer, self._rest = buffer, b""

    def feed(self, output: bytes) -> None:
        *whole, self._rest = (self._rest + output).split(b"\n")
        for line in whole:
            self._buffer.add(line[-_LONGEST_LINE:])
        if len(self._rest) > _LONGEST_LINE:  # a progress bar, whose line never ends
            self._buffer.add(self._rest)
            self._rest = b""

    def end(self) -> None:
        if self._rest:
            self._buffer.add(self._rest)
            self._rest = b""


def _read_pipe(buffer: Buffer, writer: _Writer) -> None:
    lines, poll = _Lines(buffer), select.poll()
    poll.register(0, select.POLLIN)
    while True:
        if poll.poll(1000):
            output = os.read(0, 1 << 16)
            if not output:
                break
            lines.feed(output)
        writer.check()
    lines.end()


def _read_files(settings: Settings, buffer: Buffer, writer: _Writer) -> None:
    """Read what is appended to the files until the process ends. A file that Ray rotates is read from its start."""
    begun = Path(f"/proc/{settings.pid}")
    opened: dict[str, tuple[int, _Lines]] = {}
    session, over = Path(settings.session), False
    while True:
        over = not _runs(begun)
        for pattern in settings.files:
            for path in session.glob(pattern):
                if str(path) not in opened:
                    with contextlib.suppress(OSError):
                        opened[str(path)] = os.open(path, os.O_RDONLY | os.O_CLOEXEC), _Lines(buffer)
        for name, (descriptor, lines) in list(opened.items()):
            while output := os.read(descriptor, 1 << 16):
                lines.feed(output)
            if over or _replaced(name, descriptor):
                lines.end()
                os.close(descriptor)
                del opened[name]
        writer.check()
        if over:
            return
        time.sleep(_POLL_SECONDS)


def _runs(process: Path) -> bool:
    with contextlib.suppress(OSError):
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    return False


def _replaced(name: str, descriptor: int) -> bool:
    try:
        return not os.path.samestat(Path(name).stat(), os.fstat(descriptor))
    except OSError:
        return True


def main() -> None:
    """Keep the output that argv[1] describes, as JSON. Detaches from the parent at once."""
    settings = Settings(**json.loads(sys.argv[1]))
    if os.fork():
        os._exit(0)
    # Ray signals all processes of a job, and a terminal its foreground processes; this one ends with its input.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    buffer = Buffer()
    writer = _Writer(settings, buffer)
    if settings.pid:
        _read_files(settings, buffer, writer)
    else:
        _read_pipe(buffer, writer)
    buffer.end()
    writer.done.wait(SECONDS_TO_END)
    if left_out := buffer.lost + buffer.waiting + writer.unwritten:
        _say(f"{left_out} lines of output are not in {settings.folder}: storage did not take them in time.")
    os._exit(0)  # the writing thread may hang in the kernel


# --- in the process whose output is kept -----------------------------------------------------------------------------


def start(settings: Settings, stdin: int = subprocess.DEVNULL, pass_on: tuple[int, ...] = ()) -> None:
    """Start the process that keeps the output. Afterwards it is not a child of this process. Raises OSError."""
    subprocess.run(
        # Isolated, and without site-packages: only the standard library.
        [sys.executable, "-I", "-S", __file__, json.dumps(asdict(settings))],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        pass_fds=pass_on,
        start_new_session=True,
        check=True,
    )


class Pipe:
    """A pipe to a process that keeps what is written to it. Never blocks and never fails."""

    def __init__(self, settings: Settings | None) -> None:
        """`settings`: None keeps nothing."""
        self._output = self._alive = -1
        self._waiting: deque[bytes] = deque()
        self._size = 0  # of what waits, in bytes
        self._mark, self._marked = b"", 0  # the last line about missing lines, and their number
        if settings is None:
            return
        reading, self._output = os.pipe2(os.O_CLOEXEC)
        self._alive, alive = os.pipe2(os.O_CLOEXEC)  # ends with that process
        try:
            start(settings, reading, (alive,))
            os.set_blocking(self._output, False)
        except (OSError, subprocess.SubprocessError) as error:
            _say(f"The output is not kept in {settings.folder}: {error}.")
            self.abandon()
        finally:
            os.close(reading)
            os.close(alive)

    def write(self, output: bytes) -> None:
        if self._output < 0:
            return
        self._waiting.append(output)
        self._size += len(output)
        self._pass_on()
        if self._size > _BUFFER:  # that process does not run
            self._leave_out()

    def close(self, seconds: float = SECONDS_TO_END + 2) -> None:
        """Wait until the output is in storage, at most `seconds`."""
        deadline = time.monotonic() + seconds
        while self._waiting and self._output >= 0 and time.monotonic() < deadline:
            self._pass_on()
            time.sleep(0.01)
        if self._output >= 0:
            os.close(self._output)
            self._output = -1
            poll = select.poll()
            poll.register(self._alive, select.POLLIN)
            poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        self.abandon()

    def abandon(self) -> None:
        """Close the pipe, for example in a fork, without waiting."""
        for descriptor in (self._output, self._alive):
            if descriptor >= 0:
                os.close(descriptor)
        self._output = self._alive = -1
        self._waiting.clear()

    def _pass_on(self) -> None:
        """Write what the pipe takes."""
        try:
            while self._waiting:
                first = self._waiting[0]
                count = os.write(self._output, first)
                self._size -= count
                self._waiting.popleft()
                if count < len(first):
                    self._waiting.appendleft(first[count:])
        except BlockingIOError:
            pass
        except OSError:  # that process was killed
            self.abandon()

    def _leave_out(self) -> None:
        """Leave out the oldest half of what waits, and write how many lines that were."""
        left_out = 0
        while self._size > _BUFFER // 2:
            oldest = self._waiting.popleft()
            self._size -= len(oldest)
            left_out += self._marked if oldest is self._mark else oldest.count(b"\n")
        # The pipe may have a part of the first line. The next piece begins with the rest of a line.
        while self._waiting:
            oldest = self._waiting.popleft()
            _, newline, rest = oldest.partition(b"\n")
            self._size -= len(oldest) - len(rest)
            if newline:
                left_out += 1
                self._waiting.appendleft(rest)
                break
        # The pipe takes it whole or not at all, because it is shorter than PIPE_BUF.
        self._mark, self._marked = b"\n" + missing(left_out).encode() + b"\n", left_out
        self._waiting.appendleft(self._mark)
        self._size += len(self._mark)


if __name__ == "__main__":
    main()
