"""Drills as a Python function: `launcher drill` prints its result."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launcher import api, distribution
from launcher.errors import LauncherError
from launcher.k8s.target import Target
from launcher.products.drill import engine
from launcher.products.drill.certificate import Outcome
from launcher.products.drill.cluster import faults as cluster_faults
from launcher.products.drill.cluster import place as cluster_place
from launcher.products.drill.local.faults import FAULTS
from launcher.products.drill.local.place import LocalPlace
from launcher.products.drill.local.run import LOCAL
from launcher.products.drill.training import Training

VERSION = 1
_PATIENCE = 900.0
_BASE = "quickstart"
_SETS = ("train.steps=40", "train.checkpoint_period=10", "train.eval_interval=-1", "run.maxRestarts=3")

Numbers = Mapping[int, tuple[Any, ...]]


@dataclass(frozen=True)
class Certificate:
    """The result of a drill. `left_out` has a sentence for each fault that was not possible, by its name, and
    `numbers` those of the run without a fault, by step."""

    date: str
    place: str
    steps: int
    checkpoint_period: int
    outcomes: Sequence[Outcome]
    left_out: Mapping[str, str]
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
            "left_out": dict(self.left_out),
        }


def drill(
    faults: Sequence[str] = (),
    *,
    files: Sequence[str] = (),
    sets: Sequence[str] = (),
    target: Target = LOCAL,
    numbers: Numbers | None = None,
    patience: float = _PATIENCE,
    progress: Callable[[str], None] = lambda _: None,
    approve: Callable[[Sequence[str]], None] = lambda _: None,
) -> Certificate:
    """Train a small model without a fault, and again with each of the faults (by default all that are possible).

    `target` is this machine, or a namespace of a cluster. `files` and `sets` override values of the training; for a
    cluster, they name at least the image and the storage. With `numbers` of an earlier certificate with the same
    values, the run without a fault is left out. A run that makes no progress for `patience` seconds fails.

    On this machine, the runs are in a temporary folder, apart from the user's runs. In a cluster, their names begin
    with drill-, and `approve` receives sentences about what is about to be created there; it raises an error to prevent
    that. The runs are removed at the end, also after Ctrl-C. `progress` receives a sentence for each step of the drill.
    Raises LauncherError if a fault is not known or not possible, and if the undisturbed run fails.
    """
    known = [fault.name for fault in (FAULTS if target.local else cluster_faults.FAULTS)]
    for name in faults:
        if name not in known:
            where = "on this machine" if target.local else "in a cluster"
            raise LauncherError(f'"{name}" is not a fault of a drill {where}; use {", ".join(known)}.')
    date = datetime.now(UTC).isoformat(timespec="seconds")
    with contextlib.ExitStack() as stack:
        place: engine.Place
        if target.local:
            runs = stack.enter_context(_own_folder())
            training = Training([_BASE, *files], [*_SETS, *sets])
            place = LocalPlace(runs, training, faults, patience)
        else:
            training = Training([_BASE, cluster_place.VALUES, *files], sets)
            cluster = cluster_place.ClusterPlace(target, training, faults, patience, progress)
            approve(cluster.announcement())
            place = stack.enter_context(cluster.opened())
        if numbers is None:
            progress("Training without a fault, to compare with.")
            numbers = engine.undisturbed(place)
        outcomes = []
        for fault in place.faults.values():
            progress(f"{fault.name}: {fault.about}.")
            outcomes.append(engine.with_fault(fault, place, numbers))
        return Certificate(date, place.about, place.steps, place.period, outcomes, place.left_out, numbers)


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
