"""The process that keeps the output of a run, with real processes and files. tests/trainer/test_kept_output.py has
storage that is slow, refuses or hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import psutil
import pytest

from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.errors import LauncherError
from launcher.products.records.stored_logs import StoredLogs
from trainer import log_keeper
from trainer.log_keeper import Buffer, Pipe, Settings, Store

PATIENCE = 30.0


def settings(tmp_path: Path, **changes: object) -> Settings:
    return Settings(**{
        "folder": str(tmp_path / "run" / "logs" / "1"), "source": "driver", "size": 1 << 20, "seconds": 0.1, **changes
    })  # type: ignore[arg-type]  # fmt: skip


def texts(tmp_path: Path, worker: int | None = None, excerpt: Excerpt = WHOLE, attempt: int = 1) -> list[str]:
    return list(StoredLogs(str(tmp_path / "run")).excerpt(attempt, worker, excerpt))


def keepers(tmp_path: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(tmp_path) in word for word in process.info["cmdline"] or ())
    ]


def until(condition: object, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_lines_are_in_storage_in_their_order_and_with_their_times(tmp_path: Path) -> None:
    began = time.time()
    pipe = Pipe(settings(tmp_path))
    pipe.write(b"one\ntwo \xff\nla")
    pipe.write(b"st words")
    pipe.close()
    assert texts(tmp_path) == ["one", "two \ufffd", "last words"]
    assert texts(tmp_path, excerpt=Excerpt(tail=2)) == ["two \ufffd", "last words"]
    assert texts(tmp_path, excerpt=Excerpt(since=began)) == texts(tmp_path)
    assert texts(tmp_path, excerpt=Excerpt(since=time.time() + 1)) == []
    (path,) = (tmp_path / "run" / "logs" / "1").iterdir()
    zcat = subprocess.run(["gzip", "-dc", path], capture_output=True, check=True).stdout
    assert zcat.count(b"\n") == 3
    assert not keepers(tmp_path)


def test_the_files_stay_within_their_limit_and_keep_the_first(tmp_path: Path) -> None:
    store = Store(settings(tmp_path, size=40_000))
    for number in range(200):
        stamp = f"2026-11-27T20:37:39.{number:06d}Z".encode()
        store.write(stamp + b" %d " % number + os.urandom(1000).hex().encode() + b"\n")
    files = list((tmp_path / "run" / "logs" / "1").iterdir())
    assert sum(file.stat().st_size for file in files) <= 40_000
    numbers = [text.split()[0] for text in texts(tmp_path)]
    assert numbers[0] == "0"
    assert numbers[-1] == "199"
    (gap,) = (text for text in texts(tmp_path) if "missing" in text)
    assert gap.endswith("files of output are missing here: the log reached storage.logs.size.)")
    assert [text.split()[0] for text in texts(tmp_path, excerpt=Excerpt(tail=3))] == ["197", "198", "199"]


def test_a_limit_counts_the_files_of_earlier_starts(tmp_path: Path) -> None:
    for start in range(6):
        store = Store(settings(tmp_path, size=30_000))
        for number in range(10):
            store.write(f"2026-11-27T20:3{start}:39.{number:06d}Z ".encode() + os.urandom(1000).hex().encode() + b"\n")
    files = (tmp_path / "run" / "logs" / "1").iterdir()
    assert sum(file.stat().st_size for file in files) <= 30_000


def test_a_killed_process_loses_the_last_seconds_only(tmp_path: Path) -> None:
    """The whole container is killed: the program, and the process that keeps its output."""
    script = (
        "import sys, time; from trainer.log_keeper import Pipe, Settings\n"
        "pipe = Pipe(Settings(sys.argv[1], 'driver', 1 << 20, 0.1))\n"
        "for n in range(10**6): pipe.write(b'line %d\\n' % n); time.sleep(0.001)\n"
    )
    folder = tmp_path / "run" / "logs" / "1"
    program = subprocess.Popen([sys.executable, "-c", script, str(folder)], cwd=Path(__file__).parents[3])
    until(lambda: folder.exists() and len(texts(tmp_path)) > 300)
    (keeper,) = (process for process in keepers(tmp_path) if process.pid != program.pid)
    seen = len(texts(tmp_path))
    keeper.kill()
    program.kill()
    program.wait()
    kept = texts(tmp_path)
    assert kept == [f"line {number}" for number in range(len(kept))]
    assert len(kept) >= seen


def test_a_process_whose_keeper_is_killed_goes_on(tmp_path: Path) -> None:
    pipe = Pipe(settings(tmp_path))
    pipe.write(b"one\n")
    until(lambda: (tmp_path / "run").exists())
    for keeper in keepers(tmp_path):
        keeper.kill()
    began = time.monotonic()
    for _ in range(1000):
        pipe.write(b"x" * 10_000 + b"\n")
    pipe.close()
    assert time.monotonic() - began < 5


def test_a_stopped_keeper_blocks_nothing_and_the_missing_lines_are_counted(tmp_path: Path) -> None:
    pipe = Pipe(settings(tmp_path, size=1 << 30))
    pipe.write(b"first\n")
    until(lambda: (tmp_path / "run").exists() and texts(tmp_path) == ["first"])
    (keeper,) = keepers(tmp_path)
    keeper.suspend()
    began = time.monotonic()
    for number in range(4000):
        pipe.write(b"%d %s\n" % (number, b"x" * 10_000))
    assert time.monotonic() - began < 10
    keeper.resume()
    pipe.close()
    lines = texts(tmp_path)
    counts = [int(line[1:].split()[0]) for line in lines if line.startswith("(") and "missing here" in line]
    assert counts
    whole = [line for line in lines if line.endswith("x" * 10_000)]
    assert whole[-1].startswith("3999 ")
    # A line that was cut by the gap may be there in part.
    assert len(whole) + sum(counts) in (3999, 4000)


def test_the_buffer_leaves_out_the_oldest_lines_and_counts_them() -> None:
    buffer = Buffer(limit=1000)
    for number in range(100):
        buffer.add(b"line %d" % number)
    buffer.end()
    text, last = buffer.take(10)
    assert last
    first, *rest = text.decode().splitlines()
    count = 100 - len(rest)
    assert first.endswith(f" ({count} lines of output are missing here: storage did not take them in time.)")
    assert [line.partition("Z ")[2] for line in rest] == [f"line {number}" for number in range(count, 100)]
    assert buffer.lost == count
    stamps = [line[:27] for line in (first, *rest)]
    assert stamps == sorted(set(stamps))


def test_a_write_that_is_repeated_is_read_once(tmp_path: Path) -> None:
    """Storage may have taken a write for which it reported an error."""
    store = Store(settings(tmp_path))
    lines = b"".join(b"2026-11-27T20:37:39.%06dZ line %d\n" % (number, number) for number in range(5))
    store.write(lines)
    store._written = log_keeper._SEGMENT
    store.write(lines + b"2026-11-27T20:37:40.000000Z line 5\n")
    assert texts(tmp_path) == [f"line {number}" for number in range(6)]
    assert texts(tmp_path, excerpt=Excerpt(tail=4)) == [f"line {number}" for number in range(2, 6)]


def test_a_damaged_file_costs_its_own_lines_only(tmp_path: Path) -> None:
    store = Store(settings(tmp_path))
    for number in range(3):
        store.write(f"2026-11-27T20:37:39.00000{number}Z line {number}\n".encode())
        store._written = log_keeper._SEGMENT
    first, second, third = sorted((tmp_path / "run" / "logs" / "1").iterdir())
    damaged = bytearray(second.read_bytes())
    damaged[12] ^= 0xFF
    second.write_bytes(bytes(damaged))
    third.write_bytes(third.read_bytes()[:-9])  # cut by a kill
    assert texts(tmp_path)[0] == "line 0"
    assert texts(tmp_path)[1] == f"(1/{second.name} is damaged: the rest of it is left out.)"
    assert first.exists()


def test_a_file_that_unpacks_to_much_is_cut(tmp_path: Path) -> None:
    store = Store(settings(tmp_path))
    store.write(b"x")
    (path,) = (tmp_path / "run" / "logs" / "1").iterdir()
    packer = zlib.compressobj(wbits=31)
    path.write_bytes(b"".join(packer.compress(b"x" * (1 << 20) + b"\n") for _ in range(80)) + packer.flush())
    stored = StoredLogs(str(tmp_path / "run"))
    last = ""
    for text in stored.excerpt(1, None, WHOLE):
        last = text
    assert last == f"(1/{path.name} has more than 64 MiB of text: the rest is left out.)"


def test_the_files_of_a_worker_are_read_until_it_ends(tmp_path: Path) -> None:
    """Also the lines that it wrote right before it was killed."""
    session = tmp_path / "session"
    (session / "logs").mkdir(parents=True)
    script = "for n in range(2000): print(n, flush=True)\nimport os; os.kill(os.getpid(), 9)"
    gate = f"import os, time\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.01)\n"
    with (session / "logs" / "worker-1.out").open("wb") as output:
        worker = subprocess.Popen([sys.executable, "-c", gate + script], stdout=output)
    files = ("logs/worker-*.out", "logs/worker-*.err")
    log_keeper.start(settings(tmp_path, source="host-1", pid=worker.pid, session=str(session), files=files))
    log_keeper.start(settings(tmp_path, source="host-0", pid=worker.pid, session=str(session), files=("none",)))
    (tmp_path / "go").touch()
    assert worker.wait() == -signal.SIGKILL
    until(lambda: not keepers(tmp_path))
    assert texts(tmp_path, worker=1) == [str(number) for number in range(2000)]
    with pytest.raises(LauncherError, match="Worker 1 was not found: the run has 1, counted from 0"):
        texts(tmp_path, worker=1, attempt=2) if _second(tmp_path) else None


def _second(tmp_path: Path) -> bool:
    Store(settings(tmp_path, folder=str(tmp_path / "run" / "logs" / "2"), source="host-0")).write(b"x\n")
    return True


def test_progress_bars_and_no_output_at_all(tmp_path: Path) -> None:
    pipe = Pipe(settings(tmp_path))
    pipe.close()
    assert not (tmp_path / "run").exists()
    pipe = Pipe(settings(tmp_path))
    for number in range(3000):
        pipe.write(b"\r%098d" % number)
    pipe.close()
    assert "".join(texts(tmp_path)).count("\r") == 3000
    assert max(map(len, texts(tmp_path))) <= 2 << 16
