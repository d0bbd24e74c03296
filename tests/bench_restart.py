"""The seconds from the kill of a process that trains to the end of the next step, compared with an older version.

The older version is the last one before restarts were made shorter: the benchmark takes it from the history of the
repository, and runs both with the same packages. `python -m tests.bench_restart` measures only this. The steps since
the last checkpoint, which the next step follows, are not counted.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from launcher import api
from launcher.products.drill.local.run import LOCAL, LocalRun
from tests.trainer.runs import TrainingHarness, free_port

CHECKOUT = Path(__file__).parents[1]
BEFORE = "735cd5d6"
"""The last commit before restarts were made shorter."""
STEPS, KILLED_AT, ROUNDS = 500, 6, 3
SETS = (
    f"train.steps={STEPS}",
    "train.checkpoint_period=5",
    "train.eval_interval=-1",
    "run.maxRestarts=1",
)

Row = tuple[str, list[float], list[float], float]


def rows() -> Iterator[Row]:
    """Yield the seconds of a restart with two hosts under Ray, and without Ray with one and with two hosts.

    Yields nothing without the history. Hosts without Ray are two pods of a JobSet: the older version creates both
    again, of which only the start of their processes counts here.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        home = Path(name)
        before = _environment(home / "before")
        if before is None:
            return
        os.environ["SLIPWAY_HOME"] = name
        try:
            for hosts, how, goal in ((2, "a killed worker under Ray", 0.50), (1, "a killed process without Ray", 0.25)):
                ours: list[float] = []
                older: list[float] = []
                for number in range(ROUNDS):
                    ours.append(_restart(home, f"now-{hosts}-{number}", hosts, sys.executable))
                    older.append(_restart(home, f"before-{hosts}-{number}", hosts, before))
                yield f"restart of {how} / before restarts were made shorter", ours, older, goal
            ours = [_restart_of_pods(home, f"pods-now-{number}", sys.executable) for number in range(ROUNDS)]
            older = [_restart_of_pods(home, f"pods-before-{number}", before) for number in range(ROUNDS)]
            yield (
                "restart of a killed process of two pods / of both pods, without the time of new pods",
                ours,
                older,
                0.25,
            )
        finally:
            del os.environ["SLIPWAY_HOME"]


def _environment(folder: Path) -> str | None:
    """Return the Python of an environment with the older version and the packages of this one; None without it."""
    git = ["git", "-C", str(CHECKOUT), "archive", BEFORE, "launcher", "trainer", "charts", "values"]
    done = subprocess.run(git, capture_output=True)
    if done.returncode:
        print(f"The history of this clone has no {BEFORE}, so restarts are not measured.", file=sys.stderr)
        return None
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    venv.create(folder / ".venv", symlinks=True)
    packages = Path(psutil.__file__).parents[1]
    own = folder / ".venv/lib" / packages.parent.name / "site-packages"
    (own / "before.pth").write_text(f"{folder}\n{packages}\n")  # files .pth of the second folder are not read
    return str(folder / ".venv/bin/python")


def _environment_of(python: str) -> dict[str, str]:
    """Return the variables for a program of an environment: PYTHONPATH can have this version."""
    ours = python == sys.executable
    return {name: value for name, value in os.environ.items() if ours or name != "PYTHONPATH"}


def _restart(home: Path, name: str, hosts: int, python: str) -> float:
    sets = [*SETS, f"slice.hosts={hosts}", f"train.jax_cache_dir={home / Path(python).parts[-4] / 'cache'}"]
    run = LocalRun(home / "runs" / name, api.plan(["quickstart"], sets, name=name), None, ray=hosts > 1)
    submit = [python, "-m", "launcher", "submit", "-f", "quickstart", "--name", name]
    options = [part for each in sets for part in ("--set", each)]
    # It follows the run until this cancels it.
    program = [*submit, *options]
    environment, nothing = _environment_of(python), subprocess.DEVNULL
    with subprocess.Popen(program, cwd=home, env=environment, stdout=nothing, stderr=nothing):
        try:
            return _seconds(run, hosts)
        finally:
            with contextlib.suppress(Exception):
                api.cancel(name, target=LOCAL)


def _restart_of_pods(home: Path, name: str, python: str) -> float:
    data = {"corpus": "python", "heldOut": {"fraction": 0.02}, "tokenizer": {"kind": "sentencepiece", "path": ""}}
    cache = str(home / f"cache-{name.rpartition('-')[0]}")
    train: dict[str, Any] = {"vocab_size": 32000, "steps": STEPS, "checkpoint_period": 5, "eval_interval": None}
    config = TrainingHarness(home, home).config(name, data=data, jax_cache_dir=cache, **train)
    run = LocalRun(home / name, api.plan(["quickstart"], [], name=name), None, ray=False)
    command = [python, "-m", "trainer", "--config", str(config), "--no-ray"]
    place = {**_environment_of(python), "SLIPWAY_COORDINATOR": f"127.0.0.1:{free_port()}"}

    def start(host: int) -> subprocess.Popen[bytes]:
        environment = {**place, "SLIPWAY_HOST_INDEX": str(host)}
        return subprocess.Popen(
            command, env=environment, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    pods = [start(0), start(1)]
    try:
        _until(lambda: run.steps() >= KILLED_AT)
        starts, since = len(run.starts()), time.monotonic()
        trains = [psutil.Process(pods[1].pid), *psutil.Process(pods[1].pid).children()]
        trains[-1].kill()
        if len(trains) == 1:  # the older version has no parent of this process
            for pod in pods:
                pod.kill()
                pod.wait()
            pods = [start(0), start(1)]
        _until(lambda: len(run.starts()) > starts and run.steps() > run.starts()[-1])
        return time.monotonic() - since
    finally:
        for pod in pods:
            pod.kill()  # the process that trains ends with its parent
            pod.wait()


def _seconds(run: LocalRun, hosts: int) -> float:
    _until(lambda: run.steps() >= KILLED_AT)
    if hosts > 1:
        with contextlib.suppress(TimeoutError):  # the older version has no spares
            _until(lambda: len(run.processes("ray::SPARE")) >= hosts, 15)
    pattern = "ray::RayTrainWorker" if hosts > 1 else "-m trainer "
    starts, since = len(run.starts()), time.monotonic()
    # Without Ray, the process that trains is the youngest.
    max(map(psutil.Process, run.processes(pattern)), key=psutil.Process.create_time).kill()
    _until(lambda: len(run.starts()) > starts and run.steps() > run.starts()[-1])
    return time.monotonic() - since


def _until(condition: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("The training does not go on.")
        time.sleep(0.05)


if __name__ == "__main__":
    for what, ours, other, _ in rows():
        print(what, ours, other, round(statistics.median(ours) / statistics.median(other), 2), file=sys.stderr)
