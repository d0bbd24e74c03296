"""Drills as a Python function: `launcher drill` prints its result."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launcher import api, distribution
from launcher.errors import LauncherError
from launcher.k8s.target import Target
from launcher.products.drill.certificate import Observed, Outcome, judge
from launcher.products.drill.faults import FAULTS, Fault
from launcher.products.drill.run import DrillRun
from launcher.products.drill.webhook import Webhook

VERSION = 1
_LOCAL = Target(local=True)
_STEPS, _PERIOD = 40, 10
_FAULT_AT = 14
"""The steps that are finished before a fault: four after a checkpoint."""
_PATIENCE = 600.0
_SETS = (
    f"train.steps={_STEPS}",
    f"train.checkpoint_period={_PERIOD}",
    f"train.learning_rate_schedule_steps={_STEPS}",
    "train.eval_interval=-1",
    "run.maxRestarts=3",
)


@dataclass(frozen=True)
class Certificate:
    """The result of a drill."""

    date: str
    outcomes: Sequence[Outcome]

    @property
    def passed(self) -> bool:
        """Whether all promises were kept."""
        return all(not outcome.problems for outcome in self.outcomes)

    def as_json(self) -> dict[str, Any]:
        """Return the certificate as JSON."""
        return {
            "version": VERSION,
            "date": self.date,
            "slipway": distribution.version(),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
            "place": "this machine: Ray, two hosts on CPU",
            "steps": _STEPS,
            "checkpoint_period": _PERIOD,
            "passed": self.passed,
            "faults": [outcome.as_json() for outcome in self.outcomes],
        }


def drill(faults: Sequence[str] = (), *, progress: Callable[[str], None] = lambda _: None) -> Certificate:
    """Train a small model on this machine without a fault, and again with each of the faults (all by default).

    The runs are in a temporary folder, apart from the user's runs, and are removed at the end, also after Ctrl-C.
    `progress` receives a sentence for each step of the drill. Raises LauncherError if a fault is not known, if the
    machine is not Linux, or if the undisturbed run fails.
    """
    known = {fault.name: fault for fault in FAULTS}
    for name in faults:
        if name not in known:
            raise LauncherError(f'"{name}" is not a fault of a drill; use {", ".join(known)}.')
    if sys.platform != "linux":
        raise LauncherError("launcher drill needs Linux: it finds the processes of its runs in /proc.")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    with _own_folder() as runs:
        progress("Training without a fault, to compare with.")
        expected = _undisturbed(runs)
        outcomes = []
        for fault in [known[name] for name in dict.fromkeys(faults)] or FAULTS:
            progress(f"{fault.name}: {fault.about}.")
            outcomes.append(_with_fault(fault, runs, expected.numbers()))
        return Certificate(date, outcomes)


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """Use a temporary SLIPWAY_HOME. At the end, stop its runs and remove it."""
    before = os.environ.get("SLIPWAY_HOME")
    home = Path(tempfile.mkdtemp(prefix="slipway-drill-"))
    os.environ["SLIPWAY_HOME"] = str(home)
    try:
        yield home / "runs"
    finally:
        try:
            for run in api.list_runs(lambda _: None, target=_LOCAL):
                if not run.state.ended:
                    api.cancel(run.name, target=_LOCAL)
        finally:
            os.environ.pop("SLIPWAY_HOME")
            if before is not None:
                os.environ["SLIPWAY_HOME"] = before
            shutil.rmtree(home, ignore_errors=True)


def _submit(name: str, webhook: Webhook | None) -> None:
    address = [] if webhook is None else [f"worker.env.SLIPWAY_NOTIFY={webhook.address}"]
    api.submit(api.plan(["quickstart"], [*_SETS, *address], name=name), target=_LOCAL)


def _undisturbed(runs: Path) -> DrillRun:
    _submit("undisturbed", None)
    end = api.wait("undisturbed", timeout=_PATIENCE, target=_LOCAL)
    if end.state != "succeeded":
        raise LauncherError(f"The run without a fault has {end.state}: {end.reason}")
    return DrillRun(runs / "undisturbed")


def _with_fault(fault: Fault, runs: Path, expected: dict[int, tuple[Any, ...]]) -> Outcome:
    run = DrillRun(runs / fault.name)
    with Webhook() as webhook:
        if fault.silent:
            webhook.close()
        _submit(run.name, webhook)
        _until(lambda: run.steps() >= _FAULT_AT, run)
        step = before = run.steps()
        starts, at, since = len(run.starts()), time.monotonic(), time.time()
        fault.inject(run)
        seconds = None
        if fault.resubmit:
            _until(lambda: api.status(run.name, target=_LOCAL).state.ended, run, ended=True)
            _submit(run.name, webhook)
        while not api.status(run.name, target=_LOCAL).state.ended and time.monotonic() - at < _PATIENCE:
            if len(run.starts()) == starts:
                before = max(before, run.steps())  # it can train on before it stops
            elif seconds is None and run.steps() > before:
                seconds = time.monotonic() - at
            time.sleep(0.1)
        end = api.status(run.name, target=_LOCAL)
        seen = Observed(
            state=end.state.value,
            reason=end.reason,
            at_step=step,
            before=before,
            starts=run.starts(),
            seconds=seconds,
            spent=run.spent(since, seconds) if seconds else {},
            numbers=run.numbers(),
            notified=webhook.events(run.name),
        )
    return judge(fault, seen, expected, _PERIOD)


def _until(check: Callable[[], bool], run: DrillRun, *, ended: bool = False) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not check():
        if time.monotonic() > deadline:
            raise LauncherError(f"The run {run.name} of the drill did not get there within {_PATIENCE:g} s.")
        if not ended and (now := api.status(run.name, target=_LOCAL)).state.ended:
            raise LauncherError(f"The run {run.name} of the drill ended before its fault: {now.reason or now.state}")
        time.sleep(0.1)
