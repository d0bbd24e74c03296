"""The run of a drill on this machine: its folder and its processes. A drill reads the files of the trainer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from launcher.backends.local.processes import descendants
from launcher.backends.local.record import read_lines, read_record
from launcher.trainer_output import EVENTS_FILE, METRICS_FILE

_WHILE_TRAINING = ("training", "evaluation", "checkpoint")
_EXACT = ("loss", "grad_norm", "param_norm", "learning_rate")


@dataclass(frozen=True)
class DrillRun:
    """A run in `folder`, which has its name."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    def numbers(self) -> dict[int, tuple[Any, ...]]:
        """Return the numbers of each step that must be equal bit for bit. JSON keeps every bit of a double."""
        steps = (line for line in read_lines(self.folder / METRICS_FILE) if "loss" in line)
        return {int(line["step"]): tuple(line.get(key) for key in _EXACT) for line in steps}

    def steps(self) -> int:
        """Return the number of finished steps."""
        return max(self.numbers(), default=-1) + 1

    def starts(self) -> list[int]:
        """Return the step of each start of the training."""
        return [
            int(line["step"]) for line in read_lines(self.folder / EVENTS_FILE) if line.get("event") == "loop_started"
        ]

    def spent(self, since: float, seconds: float) -> dict[str, float]:
        """Return the seconds of each phase in the `seconds` after a fault at `since` (Unix seconds).

        "detection" is the time until the failure is known or the trainer starts again, and "workers" the time until
        Ray has started new workers.
        """
        entered = [("detection", since)]
        for line in read_lines(self.folder / EVENTS_FILE):
            phase = {"phase": line.get("phase"), "worker_failed": "workers"}.get(str(line.get("event")))
            if phase is None or (len(entered) == 1 and phase in _WHILE_TRAINING):
                continue
            at = datetime.fromisoformat(str(line["time"])).timestamp()
            if since < at < since + seconds:
                entered.append((str(phase), at))
        spent: defaultdict[str, float] = defaultdict(float)
        for (phase, at), (_, until) in pairwise([*entered, ("", since + seconds)]):
            spent[phase] += until - at
        return {phase: round(each, 1) for phase, each in spent.items()}

    def supervisor(self) -> int:
        """Return the process that starts and restarts the trainer."""
        pid = read_record(self.folder).pid
        if pid is None:
            raise ProcessLookupError("the run has not started")
        return pid

    def processes(self, pattern: str = "") -> list[int]:
        """Return the processes of the run whose command line contains `pattern`, oldest first."""
        return sorted(pid for pid in descendants(self.supervisor()) if pattern in _command_line(pid))


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it has just ended
        return ""
