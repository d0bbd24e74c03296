"""The faults of a drill on this machine: what each breaks, and what it may cost."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass

from launcher.products.drill.run import DrillRun

_WORKER = "ray::RayTrainWorker"
_FULL = 64 << 10
"""Bytes that a file may have while the storage is full: metrics.jsonl is smaller, a checkpoint is larger."""


@dataclass(frozen=True)
class Fault:
    """A fault. `inject` breaks a run that trains.

    `free`: it may cost no step, because it was announced. `notified`: the notifications that must arrive.
    `resubmit`: the run ends, and is submitted again. `silent`: the webhook is down. `periods`: the
    periods of checkpoints whose steps it may cost.
    """

    name: str
    about: str
    inject: Callable[[DrillRun], None]
    free: bool = False
    notified: tuple[str, ...] = ("failed", "ended")
    resubmit: bool = False
    silent: bool = False
    periods: int = 1


def _kill_worker(run: DrillRun) -> None:
    os.kill(run.processes(_WORKER)[-1], signal.SIGKILL)


def _kill_raylet(run: DrillRun) -> None:
    os.kill(run.processes("/raylet/raylet ")[0], signal.SIGKILL)


def _kill_driver(run: DrillRun) -> None:
    os.kill(run.processes("-m trainer ")[0], signal.SIGKILL)


def _kill_supervisor(run: DrillRun) -> None:
    os.kill(run.supervisor(), signal.SIGKILL)


def _stop(run: DrillRun) -> None:
    os.kill(run.processes("-m trainer ")[0], signal.SIGTERM)


def _fill_storage(run: DrillRun) -> None:
    for pid in run.processes(_WORKER):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_FULL, resource.RLIM_INFINITY))


FAULTS = (
    Fault("worker-killed", "SIGKILL to the process of one host", _kill_worker),
    Fault("node-killed", "SIGKILL to Ray's raylet, as if the node were gone", _kill_raylet),
    Fault("driver-killed", "SIGKILL to the driver of the training", _kill_driver),
    Fault(
        "supervisor-killed",
        "SIGKILL to the process that restarts the run; the run is submitted again",
        _kill_supervisor,
        resubmit=True,
    ),
    Fault("stopped", "SIGTERM, as before a preemption", _stop, free=True, notified=("preempted", "ended")),
    Fault(
        "storage-full",
        "the storage is full, which ends the run; it is submitted again when there is space",
        _fill_storage,
        notified=("ended",),
        resubmit=True,
        periods=2,  # a checkpoint is written while the training continues: its error is known at the next one
    ),
    Fault("webhook-down", "the webhook refuses connections", lambda _: None, free=True, notified=(), silent=True),
)
