"""A fault of a drill. local/faults.py and cluster/faults.py list those of each place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

WORKER, TRAINER = "ray::RayTrainWorker", "-m trainer "
"""Parts of the command lines of processes: a worker of Ray, and the trainer. Without Ray, the newest trains: that which
trainer/prepared.py forks."""


@dataclass(frozen=True)
class Fault[Run]:
    """A fault. `inject` breaks a run that trains.

    `free`: it may cost no step, because it was announced. `notified`: the notifications that must arrive. `resubmit`:
    the run ends, `undo` repairs what `inject` broke, and the run is submitted again. `silent`: the webhook is down.
    `apart`: what it breaks is not needed by a training, which must not start again. `in_place`: only a process starts
    again, and what DrillRun.stays names does not. `periods`: the periods of checkpoints whose steps it may cost.
    `check` returns sentences about other promises that were not kept, once the run has ended.
    """

    name: str
    about: str
    inject: Callable[[Run], None]
    free: bool = False
    notified: tuple[str, ...] = ("failed", "ended")
    resubmit: bool = False
    silent: bool = False
    apart: bool = False
    in_place: bool = False
    periods: int = 1
    undo: Callable[[Run], None] = lambda _: None
    check: Callable[[Run], Sequence[str]] = lambda _: ()
