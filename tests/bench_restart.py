"""The seconds from the kill of a process that trains to the end of the next step, with and without a process that waits
for it with its imports done (trainer/spares.py, trainer/prepared.py).

`python -m tests.bench_restart` measures only this. The steps since the last checkpoint, which the next step follows,
are not counted.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from launcher import api
from launcher.products.drill.local.run import LOCAL, LocalRun

STEPS, KILLED_AT, ROUNDS = 500, 6, 3
SETS = (
    f"train.steps={STEPS}",
    "train.checkpoint_period=5",
    "train.eval_interval=-1",
    "run.maxRestarts=1",
)

Row = tuple[str, list[float], list[float], float]


def rows() -> Iterator[Row]:
    """Yield the seconds of a restart under Ray with two hosts, and without Ray."""
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        os.environ["SLIPWAY_HOME"] = name
        try:
            for hosts, how, goal in ((2, "a killed worker under Ray", 0.50), (1, "a killed process without Ray", 0.25)):
                ours: list[float] = []
                without: list[float] = []
                for number in range(ROUNDS):
                    ours.append(_restart(Path(name), f"with-{hosts}-{number}", hosts, spares=True))
                    without.append(_restart(Path(name), f"without-{hosts}-{number}", hosts, spares=False))
                yield f"restart of {how} / without imports in advance", ours, without, goal
        finally:
            del os.environ["SLIPWAY_HOME"]


def _restart(home: Path, name: str, hosts: int, *, spares: bool) -> float:
    sets = [*SETS, f"slice.hosts={hosts}", f"train.jax_cache_dir={home / 'cache'}"]
    if not spares:
        sets.append('worker.env.SLIPWAY_SPARES="0"')
    run = LocalRun(home / "runs" / name, api.plan(["quickstart"], sets, name=name), None, ray=hosts > 1)
    run.submit()
    _until(lambda: run.steps() >= KILLED_AT)
    if spares and hosts > 1:
        _until(lambda: len(run.processes("ray::SPARE")) >= hosts)
    pattern = "ray::RayTrainWorker" if hosts > 1 else "-m trainer "
    starts, since = len(run.starts()), time.monotonic()
    # Without Ray, the process that trains is the younger one of two.
    max(map(psutil.Process, run.processes(pattern)), key=psutil.Process.create_time).kill()
    _until(lambda: len(run.starts()) > starts and run.steps() > run.starts()[-1])
    seconds = time.monotonic() - since
    api.cancel(name, target=LOCAL)
    return seconds


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("The training does not go on.")
        time.sleep(0.05)


if __name__ == "__main__":
    for what, ours, other, _ in rows():
        print(what, ours, other, round(statistics.median(ours) / statistics.median(other), 2), file=sys.stderr)
