"""A drill in any place: the run without a fault, and a run for each fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from launcher.errors import LauncherError
from launcher.k8s.errors import Unreachable
from launcher.products.drill.certificate import Observed, Outcome, judge
from launcher.products.drill.faults import Fault
from launcher.products.drill.run import DrillRun

UNDISTURBED = "undisturbed"


class Place(Protocol):
    """The place in which a drill trains. `about` describes it. `faults` are those to inject, by name, and `left_out`
    has a sentence for each that is not possible. `steps` and `period` are train.steps and train.checkpoint_period.

    A fault is injected when `fault_at` steps are finished. A run that makes no progress for `patience` seconds is
    stopped. `pause` is the number of seconds between two looks at a run, and `linger` that after its end in which its
    last lines and notifications may arrive.
    """

    about: str
    steps: int
    period: int
    fault_at: int
    pause: float
    linger: float
    patience: float

    @property
    def faults(self) -> Mapping[str, Fault[Any]]: ...

    @property
    def left_out(self) -> Mapping[str, str]: ...

    def run(self, fault: Any) -> AbstractContextManager[DrillRun]:
        """Start a run for a fault, or without one. At the end of the context, the run is stopped if it trains."""
        ...


class Stuck(LauncherError):
    """A run does not do what a drill waits for. The message becomes a problem of its row."""


def undisturbed(place: Place) -> Mapping[int, tuple[Any, ...]]:
    """Train without a fault, and return the numbers of each step (DrillRun.numbers). Raises LauncherError."""
    with place.run(None) as run:
        _until(lambda: run.status().state.ended, "end", place)
        end = run.status()
        if end.state != "succeeded":
            raise LauncherError(f"The run without a fault has {end.state}: {end.reason}")
        deadline = time.monotonic() + place.linger
        while len(numbers := run.numbers()) < place.steps and time.monotonic() < deadline:
            time.sleep(place.pause)
        if len(numbers) < place.steps:
            raise LauncherError(
                f"The run without a fault has succeeded, but has the metrics of {len(numbers)} of its {place.steps} "
                "steps, so no other run can be compared with it."
            )
        return numbers


def with_fault(fault: Fault[Any], place: Place, expected: Mapping[int, tuple[Any, ...]]) -> Outcome:
    """Train, break the run, and compare it with the `expected` numbers of the undisturbed run."""
    with place.run(fault) as run:
        drilled = _Drilled(fault, run, place)
        try:
            drilled.to_the_end()
        except Stuck as error:
            drilled.stuck = error.message
        finally:
            fault.undo(run)
        return judge(fault, drilled.observed(len(expected)), expected, place.period)


class _Drilled:
    """A run of a drill: the observations of it so far."""

    def __init__(self, fault: Fault[Any], run: DrillRun, place: Place) -> None:
        self._fault, self._run, self._place = fault, run, place
        self._at_step = self._before = 0
        self._since = 0.0
        self._seconds: float | None = None
        self._replaced: list[str] | None = None
        self._broken: Sequence[str] = ()
        self.stuck = ""

    def to_the_end(self) -> None:
        """Inject the fault, and wait until the run has ended. Raises Stuck."""
        run, place = self._run, self._place
        _until(lambda: run.steps() >= place.fault_at or run.status().state.ended, "train", place)
        if run.steps() < place.fault_at:
            now = run.status()
            raise Stuck(f"The run ended before its fault: {now.reason or now.state}")
        self._at_step = self._before = run.steps()
        starts = len(run.starts())
        try:
            stays = run.stays()
            begun, self._since = time.monotonic(), time.time()
            self._fault.inject(run)
        except (LauncherError, LookupError, OSError) as error:
            raise Stuck(f"The fault was not injected: {getattr(error, 'message', error)}") from error
        if self._fault.resubmit:
            _until(lambda: run.status().state.ended, "end after the fault", place)
            if run.status().state == "succeeded":
                raise Stuck("The fault did not end the run.")
            self._fault.undo(run)
            run.submit()
        deadline = time.monotonic() + place.patience
        while not run.status().state.ended:
            if time.monotonic() > deadline:
                raise Stuck(f"The run did not end within {place.patience:g} s after the fault.")
            if len(run.starts()) == starts:
                self._before = max(self._before, run.steps())  # it can train on before it stops
                time.sleep(place.pause)
                continue
            if self._replaced is None:
                with suppress(Unreachable):  # it may answer the next time
                    after = run.stays()
                    if not run.status().state.ended:  # the parts of a run can end with it
                        self._replaced = [name for name, identity in stays.items() if after.get(name) != identity]
            if self._seconds is None and run.steps() > max(self._before, run.steps_before_restart()):
                self._seconds = time.monotonic() - begun
            time.sleep(place.pause)
        self._broken = self._fault.check(run)

    def observed(self, steps: int) -> Observed:
        """Return the observations, once the last of the `steps` and the notifications have arrived."""
        run, end = self._run, self._run.status()
        deadline = time.monotonic() + (0 if self.stuck else self._place.linger)
        while time.monotonic() < deadline and not self._complete(steps):
            time.sleep(self._place.pause)
        return Observed(
            state=end.state.value,
            reason=end.reason,
            at_step=self._at_step,
            before=max(self._before, run.steps_before_restart()),
            starts=run.starts(),
            seconds=self._seconds,
            spent=run.spent(self._since, self._seconds) if self._seconds else {},
            numbers=run.numbers(),
            notified=run.notified(),
            stuck=self.stuck,
            unseen=run.unseen(),
            replaced=self._replaced,
            broken=self._broken,
        )

    def _complete(self, steps: int) -> bool:
        notified = self._run.notified()
        return self._run.steps() >= steps and (notified is None or {*self._fault.notified} <= {*notified})


def _until(check: Callable[[], bool], what: str, place: Place) -> None:
    deadline = time.monotonic() + place.patience
    while not check():
        if time.monotonic() > deadline:
            raise Stuck(f"The run did not {what} within {place.patience:g} s.")
        time.sleep(place.pause)
