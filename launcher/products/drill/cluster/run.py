"""The run of a drill in a cluster. Its metrics and events are read from its log, which a member can read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from launcher import api
from launcher.backends.base import RunStatus
from launcher.errors import LauncherError
from launcher.k8s import label_keys
from launcher.k8s.client import POD
from launcher.k8s.errors import Unreachable
from launcher.k8s.pods import Pod, pods
from launcher.products.drill.run import DrillRun
from launcher.trainer_output import Event, EventKind, events_in_log, is_for_programs, metrics_in_log

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan
    from launcher.products.drill.cluster.hook import Hook
    from launcher.products.drill.cluster.outage import Outage
    from launcher.products.drill.cluster.place import ClusterPlace

_PAUSE = 1.0


class ClusterRun(DrillRun):
    """A run that `place` submits. A thread follows its log until `close`. `outage` is that of the run, if any."""

    def __init__(self, place: ClusterPlace, plan: LaunchPlan, hook: Hook | None) -> None:
        self.name, self.place = plan.name, place
        self._plan, self._hook = plan, hook
        self._lines: dict[str, None] = {}  # a set in the order of arrival: a resumed log repeats lines
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._status: RunStatus | None = None
        self.outage: Outage | None = None

    def submit(self) -> None:
        self._status = api.submit(self._plan, target=self.place.target).status
        threading.Thread(target=self._follow, name=f"log of {self.name}", daemon=True).start()

    def close(self) -> None:
        """Follow the log no longer."""
        self._closed.set()

    def status(self) -> RunStatus:
        try:
            self._status = api.status(self.name, target=self.place.target)
        except Unreachable:  # it may answer the next time
            if self._status is None:
                raise
        return self._status

    def notified(self) -> Sequence[str] | None:
        return None if self._hook is None else self._hook.events(self.name)

    def metrics(self) -> Iterable[dict[str, Any]]:
        return metrics_in_log(self._read())

    def events(self) -> Iterable[Event]:
        return events_in_log(self._read())

    def pods(self) -> list[Pod]:
        """Return the pods of the run: its hosts, and Ray's head."""
        return pods(self.place.cluster.list(POD, labels=f"{label_keys.RUN}={self.name}"))

    def stays(self) -> Mapping[str, str]:
        return {f"The pod {pod.name}": f"{pod.uid}, {pod.restarts} restarts" for pod in self.pods()}

    def steps_before_restart(self) -> int:
        before = self._before_starts()
        return before[1][0] if len(before) > 1 else 0

    def unseen(self) -> frozenset[int]:
        seen = self.numbers()
        return frozenset(
            step for before, start in self._before_starts() for step in range(before, start) if step not in seen
        )

    def _before_starts(self) -> list[tuple[int, int]]:
        """Return for each start the steps that were finished before it, by the log, and the step of the start."""
        starts, done = [], 0
        for line in self._read():
            for event in events_in_log([line]):
                if event.kind is EventKind.LOOP_STARTED:
                    starts.append((done, event.step or 0))
            for entry in metrics_in_log([line]):
                if "loss" in entry:
                    done = int(entry["step"]) + 1
        return starts

    def _read(self) -> list[str]:
        with self._lock:
            return list(self._lines)

    def _follow(self) -> None:
        while not self._closed.is_set():
            with suppress(LauncherError):  # it has no pods yet, or no longer
                for line in api.logs(self.name, follow=True, target=self.place.target):
                    if self._closed.is_set():
                        return
                    if is_for_programs(line):
                        with self._lock:
                            self._lines[line] = None
                if self._status is not None and self._status.state.ended:
                    return
            time.sleep(_PAUSE)
