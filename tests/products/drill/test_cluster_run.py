"""A drill reads the log of a run in a cluster, whose last lines can be lost with a pod."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher import api
from launcher.products.drill.cluster.place import ClusterPlace
from launcher.products.drill.cluster.run import ClusterRun
from tests.cluster.launching import until

TIME = "2026-11-28T09:00:00.000Z"


def step(number: int, **more: Any) -> str:
    entry = {"step": number, "loss": 10 - number / 8, "time": f"{TIME}{more.pop('again', '')}", **more}
    return "(RayTrainWorker pid=7, ip=10.0.0.1) SLIPWAY_METRICS " + json.dumps(entry)


def start(number: int) -> str:
    return "SLIPWAY_EVENT " + json.dumps({"event": "loop_started", "time": TIME, "step": number, "steps": 40})


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that makes a run with these lines in its log."""
    runs: list[ClusterRun] = []

    def make(*lines: str) -> ClusterRun:
        state = SimpleNamespace(ended=True)
        # In place of a cluster: this test is about the lines.
        monkeypatch.setattr(api, "submit", lambda *_, **__: SimpleNamespace(status=SimpleNamespace(state=state)))
        monkeypatch.setattr(api, "logs", lambda *_, **__: iter(lines))
        run = ClusterRun(cast(ClusterPlace, SimpleNamespace(target=None)), cast(Any, SimpleNamespace(name="run")), None)
        runs.append(run)
        run.submit()
        until(lambda: run.steps() == 20, 10)
        return run

    yield make
    for run in runs:
        run.close()


def test_a_restart_that_repeats_steps(read: Any) -> None:
    lines = [start(0), *map(step, range(14)), start(11), *(step(each, again="2") for each in range(11, 20))]
    run = read("Loading.", *lines, *lines)  # a log that is read again repeats its lines
    assert run.starts() == [0, 11]
    assert run.steps_before_restart() == 14
    assert run.unseen() == frozenset()
    assert sorted(run.numbers()) == list(range(20))
    assert run.notified() is None


def test_lines_that_are_lost_with_a_pod(read: Any) -> None:
    run = read(start(0), *map(step, range(14)), start(16), *map(step, range(16, 20)))
    assert run.steps_before_restart() == 14
    assert run.unseen() == {14, 15}
