"""The faults of a drill on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
from array import array
from dataclasses import replace

from launcher.products.drill.faults import TRAINER, WORKER, Fault
from launcher.products.drill.local.run import LocalRun

_FULL = 64 << 10
"""Bytes that a file may have while the storage is full: metrics.jsonl is smaller, a checkpoint is larger."""
_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10  # linux/fs.h


def _processes(run: LocalRun, pattern: str) -> list[int]:
    if pids := run.processes(pattern):
        return pids
    raise LookupError(f'the run has no process "{pattern.strip()}"')


def _kill_worker(run: LocalRun) -> None:
    os.kill(_processes(run, WORKER if run.ray else TRAINER)[-1], signal.SIGKILL)


def _kill_raylet(run: LocalRun) -> None:
    os.kill(_processes(run, "/raylet/raylet ")[0], signal.SIGKILL)


def _kill_driver(run: LocalRun) -> None:
    os.kill(_processes(run, TRAINER)[0], signal.SIGKILL)


def _kill_supervisor(run: LocalRun) -> None:
    os.kill(run.supervisor(), signal.SIGKILL)


def _stop(run: LocalRun) -> None:
    # The driver would end the run, as for its user. A worker is stopped as a host is before a preemption.
    os.kill(_processes(run, WORKER if run.ray else TRAINER)[-1], signal.SIGTERM)


def _fill_storage(run: LocalRun) -> None:
    for pid in _processes(run, WORKER if run.ray else TRAINER):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_FULL, resource.RLIM_INFINITY))


def _refuse_storage(run: LocalRun, *, refused: bool = True) -> None:
    if os.geteuid():
        run.checkpoints.chmod(0o500 if refused else 0o700)
        return
    folder, flags = os.open(run.checkpoints, os.O_RDONLY), array("i", [0])
    try:  # no permission applies to root, but this attribute does
        fcntl.ioctl(folder, _GET_FLAGS, flags)
        flags[0] = flags[0] | _IMMUTABLE if refused else flags[0] & ~_IMMUTABLE
        fcntl.ioctl(folder, _SET_FLAGS, flags)
    finally:
        os.close(folder)


def _allow_storage(run: LocalRun) -> None:
    with contextlib.suppress(OSError):  # the file system does not have the attribute, and so refused nothing
        _refuse_storage(run, refused=False)


FAULTS: tuple[Fault[LocalRun], ...] = (
    Fault("worker-killed", "SIGKILL to the process of one host", _kill_worker, in_place=True),
    Fault("node-killed", "SIGKILL to Ray's raylet, as if the node were gone", _kill_raylet),
    Fault("driver-killed", "SIGKILL to the driver of the training", _kill_driver),
    Fault(
        "supervisor-killed",
        "SIGKILL to the process that restarts the run; the run is submitted again",
        _kill_supervisor,
        resubmit=True,
    ),
    Fault("stopped", "SIGTERM to a host, as before a preemption", _stop, free=True, notified=("preempted", "ended")),
    Fault(
        "storage-full",
        "the storage is full, which ends the run; it is submitted again when there is space",
        _fill_storage,
        notified=("ended",),
        resubmit=True,
        periods=2,  # a checkpoint is written while the training continues: its error is known at the next one
    ),
    Fault(
        "storage-refused",
        "the storage refuses checkpoints, which ends the run; it is submitted again when they are allowed",
        _refuse_storage,
        notified=("ended",),
        resubmit=True,
        periods=2,
        undo=_allow_storage,
    ),
    Fault("webhook-down", "the webhook refuses connections", lambda _: None, free=True, notified=(), silent=True),
)
_OF_RAY = ("node-killed",)


def faults(*, ray: bool) -> dict[str, Fault[LocalRun]]:
    """Return the faults of a run with Ray, or of one host, by name.

    One host has no Ray, and reports SIGTERM as the end of its attempt, because its user may have sent it.
    """
    if ray:
        return {fault.name: fault for fault in FAULTS}
    alone = [fault for fault in FAULTS if fault.name not in _OF_RAY]
    return {
        fault.name: replace(fault, notified=tuple(event for event in fault.notified if event != "preempted"))
        for fault in alone
    }
