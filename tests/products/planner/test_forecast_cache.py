"""The cache of compiled programs: one writer at a time, no partial entries, and a limited size."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.errors import LauncherError
from launcher.products.planner.forecast import program as programs
from launcher.products.planner.forecast.cache import Cache, folder
from launcher.products.planner.forecast.request import Request, request
from tests.products.planner.forecasts import VERSIONS, plan, program


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "forecast")


@pytest.fixture
def wanted() -> Request:
    return request(plan(), VERSIONS)


def test_get_returns_what_was_put(cache: Cache, wanted: Request) -> None:
    assert cache.get(wanted) is None
    cache.put(wanted, programs.read(program()))
    found = cache.get(wanted)
    assert found == programs.read(program())
    assert [path.name for path in cache.folder.iterdir()] == [f"{wanted.key}.json"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"version": 2', '"version": 1'),
        lambda text: text.replace('"fits": true', '"fit": true'),
        lambda text: json.dumps({**json.loads(text), "key": "another"}),
        lambda text: "[" * 100_000,
    ],
)
def test_a_damaged_entry_is_none_and_is_reported(cache: Cache, wanted: Request, damage: Callable[[str], str]) -> None:
    cache.put(wanted, programs.read(program()))
    path = cache.path(wanted.key)
    path.write_text(damage(path.read_text()))
    messages: list[str] = []
    assert cache.get(wanted, messages.append) is None
    assert len(messages) == 1
    assert messages[0].startswith(f"The cached forecast {path} is damaged (")
    assert messages[0].endswith("It is computed again.")


def test_an_entry_that_cannot_be_read_is_none_and_is_reported(cache: Cache, wanted: Request) -> None:
    cache.path(wanted.key).mkdir(parents=True)
    messages: list[str] = []
    assert cache.get(wanted, messages.append) is None
    assert messages == [
        f"The cached forecast {cache.path(wanted.key)} cannot be read: Is a directory. It is computed again."
    ]


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_again(
    cache: Cache, wanted: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder removes the file between the open and the lock of the next process, which then holds nothing."""
    removed: list[Path] = []
    really = fcntl.flock

    def flock(file: int, how: int) -> None:
        if not removed:
            removed.append(cache.folder / f"{wanted.key}.lock")
            removed[0].unlink()
        really(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    with cache.locked(wanted.key, lambda: None):
        assert removed[0].exists()
        other = os.open(removed[0], os.O_RDWR)
        with pytest.raises(BlockingIOError):
            really(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


def test_ctrl_c_while_waiting_leaves_the_lock_to_its_holder(cache: Cache, wanted: Request) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with cache.locked(wanted.key, lambda: None):
        with pytest.raises(KeyboardInterrupt), cache.locked(wanted.key, interrupt):
            pass
        assert (cache.folder / f"{wanted.key}.lock").exists()


def test_drafts_of_killed_processes_are_removed_after_an_hour(cache: Cache, wanted: Request) -> None:
    cache.folder.mkdir(parents=True)
    old, new = cache.folder / ".old.123456", cache.folder / ".new.123456"
    for path in (old, new):
        path.write_text("{")
    os.utime(old, (1000, 1000))
    cache.put(wanted, programs.read(program()))
    assert (old.exists(), new.exists()) == (False, True)


def test_the_second_waits_for_the_first(cache: Cache, wanted: Request) -> None:
    order: list[str] = []
    inside, go = threading.Event(), threading.Event()

    def first() -> None:
        with cache.locked(wanted.key, lambda: None):
            inside.set()
            go.wait(10)
            order.append("first")

    def wait() -> None:
        order.append("waits")
        go.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    with cache.locked(wanted.key, wait):
        order.append("second")
    thread.join()
    assert order == ["waits", "first", "second"]
    assert list(cache.folder.iterdir()) == []


def test_a_killed_process_releases_its_lock(cache: Cache, wanted: Request) -> None:
    code = (
        "import pathlib, sys, time; from launcher.products.planner.forecast.cache import Cache\n"
        "with Cache(pathlib.Path(sys.argv[1])).locked(sys.argv[2], print): print('in', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, cache.folder, wanted.key], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "in\n"
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with cache.locked(wanted.key, lambda: None):
        pass
    assert cache.get(wanted) is None


def test_the_oldest_entries_are_removed_if_there_are_too_many(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    wanted = [request(plan(f"slice: {{topology: 4x4, count: {count}}}\n"), VERSIONS) for count in range(1, 8)]
    for age, one in enumerate(reversed(wanted)):
        cache.put(one, programs.read(program()))
        os.utime(cache.path(one.key), (1000 + age, 1000 + age))
    limit = 3 * cache.path(wanted[0].key).stat().st_size
    assert cache.get(wanted[6]) is not None  # a read makes it newer than the others
    Cache(tmp_path, limit).put(wanted[1], programs.read(program()))
    assert [one for one in wanted if cache.path(one.key).exists()] == [wanted[0], wanted[1], wanted[6]]


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, wanted: Request) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "forecast")
    with pytest.raises(LauncherError, match="cannot be written to: Not a directory"), cache.locked(wanted.key, print):
        pass


def test_the_folder_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    assert folder() == tmp_path / "forecast"
    monkeypatch.delenv("SLIPWAY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "slipway" / "forecast"
