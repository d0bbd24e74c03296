"""Passes a stop request from its source to the training loop.

The request is a signal to the driver (SIGTERM, Ctrl-C, SIGUSR1 from the head's pod), or Ray's notice that a node of
the run is draining. Several hosts stop through JAX: after SIGTERM to the first host's process all hosts agree on a
step, write a checkpoint at it, and end. A single host uses LocalStopSignal: JAX's agreement once failed there without
a message, and the run continued until it was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol

STOPPED = 3
"""The exit code of every host if one of them received a stop signal, so that the run starts again."""
_POLL_SECONDS = 0.25
# Ray's Jobs API signals every process of a job, and the supervisor forwards its signal: both are one request.
_SAME_SIGNAL_SECONDS = 2.0
TERMINATION_SIGNALS = {signal.SIGTERM, signal.SIGINT}


class Watch(Protocol):
    """Reports to a training process that it must stop, and records that there is something to save."""

    def stop_requested(self) -> bool: ...

    def stepping(self) -> None: ...


class StopSignal:
    """In a driver: whether it received a stop signal, and when."""

    def __init__(self) -> None:
        self.given_at: float | None = None
        self._last = 0.0

    def listen(self) -> None:
        """Replace this process's signal handlers. Call it in the main thread."""
        for number in (*TERMINATION_SIGNALS, signal.SIGUSR1):
            signal.signal(number, self._signalled)

    @property
    def given(self) -> bool:
        return self.given_at is not None

    def elapsed(self) -> float:
        """Return the seconds since the signal."""
        return time.monotonic() - self.given_at if self.given_at is not None else 0.0

    def _signalled(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.given_at is None:
            self.given_at = self._last = now
        elif number in TERMINATION_SIGNALS and now - self._last > _SAME_SIGNAL_SECONDS:
            raise SystemExit(128 + number)  # a second signal ends the process at once
        else:
            self._last = now


@contextlib.contextmanager
def watching(watch: Watch | None, stepped: Callable[[], bool], stop: Callable[[], bool]) -> Iterator[None]:
    """While the loop runs, check periodically whether it must stop, and call `stop` until it returns True.

    `stepped`: whether the loop has finished a step, so that there is something to save.
    """
    if watch is None:
        yield
        return
    over = threading.Event()

    def check() -> None:
        forwarded = stepping = False
        while not over.wait(_POLL_SECONDS) and not (forwarded and stepping):
            # Ray's control plane may be busy. Only this thread detects the request, so it retries.
            with contextlib.suppress(Exception):
                if not stepping and stepped():
                    watch.stepping()
                    stepping = True
                if not forwarded and watch.stop_requested():
                    forwarded = stop()

    thread = threading.Thread(target=check, name="notice", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5)


def exit_on_sigterm_until_training(code: int, *, supervised: bool) -> None:
    """In the process of a host, end with `code` on SIGTERM, until JAX or LocalStopSignal handles that signal.

    It is a container's first process, or `supervised` by it. The kernel drops a SIGTERM that the first process does not
    handle: a pod that is stopped while it starts would keep its chips for its whole grace period.
    """
    host = os.getpid()
    if host != 1 and not supervised:
        return

    def end(number: int, _: FrameType | None) -> None:
        if os.getpid() == host:  # not a fork of it
            os.write(2, b"Error: The run received a stop signal before it finished a step since its start.\n")
        os._exit(code if os.getpid() == host else 128 + number)

    signal.signal(signal.SIGTERM, end)


def stop_all_hosts() -> bool:
    """Make JAX stop all hosts after the same step. Returns False if JAX does not listen yet."""
    if not _jax_listens():
        return False
    os.kill(os.getpid(), signal.SIGTERM)
    return True


def _jax_listens() -> bool:
    """Return whether JAX handles SIGTERM, which would otherwise end this process."""
    from jax._src import distributed

    return distributed.global_state.preemption_sync_manager is not None


class LocalStopSignal:
    """The stop request of a single host. Replaces JAX's service for several hosts."""

    def __init__(self) -> None:
        self._given = False
        self._answers: dict[int, bool] = {}

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle SIGTERM and Ctrl-C. A second signal ends the process as usual."""
        before = {number: signal.signal(number, self._signalled) for number in TERMINATION_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def give(self) -> bool:
        """Stop after the current step."""
        self._given = True
        return True

    def reached(self, _manager: Any, step: int) -> bool:
        """Replaces MaxText's check whether to stop after `step`, which it makes several times per step."""
        if step not in self._answers:
            self._answers = {step: self._given}
        return self._answers[step]

    def _signalled(self, number: int, _: FrameType | None) -> None:
        self._given = True
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
