"""Drills as a Python function: `launcher drill` prints its result."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launcher import api, distribution
from launcher.errors import LauncherError
from launcher.products.drill import engine
from launcher.products.drill.certificate import Outcome
from launcher.products.drill.local.faults import FAULTS
from launcher.products.drill.local.place import LocalPlace
from launcher.products.drill.local.run import LOCAL
from launcher.products.drill.training import Training

VERSION = 1
_PATIENCE = 600.0
_SETS = ("train.steps=40", "train.checkpoint_period=10", "train.eval_interval=-1", "run.maxRestarts=3")

Numbers = Mapping[int, tuple[Any, ...]]


@dataclass(frozen=True)
class Certificate:
    """The result of a drill. `numbers` are those of the run without a fault, by step."""

    date: str
    place: str
    steps: int
    checkpoint_period: int
    outcomes: Sequence[Outcome]
    numbers: Numbers = field(repr=False)

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
            "place": self.place,
            "steps": self.steps,
            "checkpoint_period": self.checkpoint_period,
            "passed": self.passed,
            "faults": [outcome.as_json() for outcome in self.outcomes],
        }


def drill(
    faults: Sequence[str] = (),
    *,
    files: Sequence[str] = (),
    sets: Sequence[str] = (),
    numbers: Numbers | None = None,
    patience: float = _PATIENCE,
    progress: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """Train a small model on this machine without a fault, and again with each of the faults (all by default).

    `files` and `sets` override values of the training. With `numbers` of an earlier certificate with the same values,
    the run without a fault is left out. A run that makes no progress for `patience` seconds is given up.

    The runs are in a temporary folder, apart from the user's runs, and are removed at the end, also after Ctrl-C.
    `progress` receives a sentence for each step of the drill. Raises LauncherError if a fault is not known, if the
    machine is not Linux, or if the undisturbed run fails.
    """
    known = [fault.name for fault in FAULTS]
    for name in faults:
        if name not in known:
            raise LauncherError(f'"{name}" is not a fault of a drill; use {", ".join(known)}.')
    if sys.platform != "linux":
        raise LauncherError("launcher drill needs Linux: it finds the processes of its runs in /proc.")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    with _own_folder() as runs:
        place = LocalPlace(runs, Training(["quickstart", *files], [*_SETS, *sets]), patience)
        here = place.faults
        for name in faults:
            if name not in here:
                raise LauncherError(f"{name} needs Ray, which a run of one host does not use; set slice.hosts to 2.")
        chosen = [here[name] for name in dict.fromkeys(faults or here)]
        if numbers is None:
            progress("Training without a fault, to compare with.")
            numbers = engine.undisturbed(place)
        outcomes = []
        for fault in chosen:
            progress(f"{fault.name}: {fault.about}.")
            outcomes.append(engine.with_fault(fault, place, numbers))
        return Certificate(date, place.about, place.steps, place.period, outcomes, numbers)


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
            for run in api.list_runs(lambda _: None, target=LOCAL):
                if not run.state.ended:
                    api.cancel(run.name, target=LOCAL)
        finally:
            os.environ.pop("SLIPWAY_HOME")
            if before is not None:
                os.environ["SLIPWAY_HOME"] = before
            shutil.rmtree(home, ignore_errors=True)
