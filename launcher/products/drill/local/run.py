"""The run of a drill on this machine: its folder and its processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher import api
from launcher.backends.base import RunStatus
from launcher.backends.local.processes import descendants
from launcher.backends.local.record import read_lines, read_record
from launcher.config.plan import LaunchPlan
from launcher.k8s.target import Target
from launcher.products.drill.faults import TRAINER
from launcher.products.drill.local.webhook import Webhook
from launcher.products.drill.run import DrillRun
from launcher.trainer_output import EVENTS_FILE, METRICS_FILE, Event, events_of

LOCAL = Target(local=True)


class LocalRun(DrillRun):
    """A run in `folder`, which has its name. `ray`: its workers are processes of Ray."""

    def __init__(self, folder: Path, plan: LaunchPlan, webhook: Webhook | None, *, ray: bool) -> None:
        self.name, self.ray, self.checkpoints = folder.name, ray, folder / "checkpoints"
        self._folder, self._plan, self._webhook = folder, plan, webhook

    def metrics(self) -> Iterable[dict[str, Any]]:
        return read_lines(self._folder / METRICS_FILE)

    def events(self) -> Iterable[Event]:
        return events_of(read_lines(self._folder / EVENTS_FILE))

    def status(self) -> RunStatus:
        return api.status(self.name, target=LOCAL)

    def submit(self) -> None:
        api.submit(self._plan, target=LOCAL)

    def notified(self) -> Sequence[str]:
        return [] if self._webhook is None else self._webhook.events(self.name)

    def stays(self) -> Mapping[str, str]:
        with suppress(ProcessLookupError):  # the run has ended
            if pids := self.processes(TRAINER):
                return {"The driver" if self.ray else "The parent of the process that trains": str(pids[0])}
        return {}

    def supervisor(self) -> int:
        """Return the process that starts and restarts the trainer."""
        pid = read_record(self._folder).pid
        if pid is None:
            raise ProcessLookupError("the run has no supervisor")
        return pid

    def processes(self, pattern: str) -> list[int]:
        """Return the processes of the run whose command line contains `pattern`, oldest first."""
        return sorted(pid for pid in descendants(self.supervisor()) if pattern in _command_line(pid))


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it has just ended
        return ""
