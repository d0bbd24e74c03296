"""The part of a log without timestamps that --tail and --since select."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from launcher.backends.local.log_file import LogFile
from launcher.backends.log_excerpt import Excerpt, check_times
from launcher.errors import UsageError


def at(minute: int, prefix: str = "(RayTrainWorker pid=7) SLIPWAY_METRICS ") -> str:
    return f'{prefix}{{"step": {minute}, "time": "2026-01-01T00:{minute:02}:00.000Z"}}'


LOG = ["first", at(1), "after 1", at(2, "SLIPWAY_EVENT "), "after 2", at(3), "after 3"]


def since(minute: int) -> float:
    return datetime.fromisoformat(f"2026-01-01T00:{minute:02}:00Z").timestamp()


def test_the_last_lines() -> None:
    assert list(Excerpt(tail=2).of(LOG)) == LOG[-2:]
    assert list(Excerpt(tail=20).of(LOG)) == LOG
    assert list(Excerpt().of(LOG)) == LOG


@pytest.mark.parametrize(("minute", "first"), [(0, 0), (1, 0), (2, 2), (3, 4), (4, 6)])
def test_the_lines_since_a_time(minute: int, first: int) -> None:
    assert list(Excerpt(since=since(minute)).of(LOG)) == LOG[first:]
    assert list(Excerpt(tail=1, since=since(minute)).of(LOG)) == LOG[-1:]


@pytest.mark.parametrize("time", ['""', '"soon"', "5", "null", "[]"])
def test_a_line_with_an_invalid_time_is_kept(time: str) -> None:
    line = f'SLIPWAY_METRICS {{"time": {time}}}'
    assert list(Excerpt(since=since(1)).of([line])) == [line]


def test_a_log_that_was_written_before_the_time(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    with LogFile(path) as log:
        assert not log.older_than(since(1))
        assert list(log.new_lines(last=False)) == []
        path.write_text("one\ntw")
        os.utime(path, (since(1), since(1)))
        assert log.older_than(since(2))
        with path.open("a") as file:
            file.write("o\nthree")
        assert list(log.new_lines(last=False)) == ["o"]
        assert list(log.new_lines(last=True)) == ["three"]


def test_the_output_of_a_command_has_no_times() -> None:
    check_times(Excerpt(tail=1), {"run": {"command": ["sh"]}})
    check_times(Excerpt(since=1.0), {"run": {"command": []}})
    with pytest.raises(UsageError, match="use --tail"):
        check_times(Excerpt(since=1.0), {"run": {"command": ["sh"]}})
