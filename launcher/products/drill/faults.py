"""A fault of a drill. local/faults.py and cluster/faults.py list those of each place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault[Run]:
    """A fault. `inject` breaks a run that trains.

    `free`: it may cost no step, because it was announced. `notified`: the notifications that must arrive. `resubmit`:
    the run ends, `undo` repairs what `inject` broke, and the run is submitted again. `silent`: the webhook is down.
    `periods`: the periods of checkpoints whose steps it may cost.
    """

    name: str
    about: str
    inject: Callable[[Run], None]
    free: bool = False
    notified: tuple[str, ...] = ("failed", "ended")
    resubmit: bool = False
    silent: bool = False
    periods: int = 1
    undo: Callable[[Run], None] = lambda _: None
