"""This machine as the place of a drill."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher import api
from launcher.errors import LauncherError
from launcher.products.drill.engine import UNDISTURBED
from launcher.products.drill.faults import Fault
from launcher.products.drill.local.faults import faults
from launcher.products.drill.local.run import LOCAL, LocalRun
from launcher.products.drill.local.webhook import Webhook
from launcher.products.drill.training import Training


class LocalPlace:
    """Runs in the folder `runs`; see engine.Place. Raises LauncherError if one of the faults `only` is not possible."""

    left_out: Mapping[str, str] = {}

    pause, linger = 0.1, 0.0

    def __init__(self, runs: Path, training: Training, only: Sequence[str], patience: float) -> None:
        if sys.platform != "linux":
            raise LauncherError("A drill on this machine needs Linux: it finds the processes of its runs in /proc.")
        self.patience, self._runs, self._training = patience, runs, training
        self.steps, self.period, self.fault_at = training.steps, training.period, training.fault_at
        hosts = training.hosts
        self.ray = hosts > 1
        here = faults(ray=self.ray)
        for name in only:
            if name not in here:
                raise LauncherError(f"{name} needs Ray, which a run of one host does not use; set slice.hosts to 2.")
        self.faults = {name: here[name] for name in only or here}
        self.about = f"this machine: {f'Ray, {hosts} hosts' if self.ray else 'one host'} on CPU"

    @contextlib.contextmanager
    def run(self, fault: Fault[Any] | None) -> Iterator[LocalRun]:
        name = UNDISTURBED if fault is None else fault.name
        with contextlib.ExitStack() as stack:
            webhook = None if fault is None else stack.enter_context(Webhook())
            sets = [] if webhook is None else [f"worker.env.SLIPWAY_NOTIFY={webhook.address}"]
            if webhook is not None and fault is not None and fault.silent:
                webhook.close()
                sets.append("notify.events={started,ended}")  # one is sent while the run trains
            if fault is not None and fault.resubmit:
                sets.append("run.maxRestarts=0")  # what the fault broke stays broken until the run is submitted again
            run = LocalRun(self._runs / name, self._training.plan(name, sets), webhook, ray=self.ray)
            run.submit()
            yield run
            if not run.status().state.ended:
                api.cancel(name, target=LOCAL)
