"""The process between a Ray job and its driver. Copies the driver's output and restarts the driver.

Ray Train restarts workers, but nothing restarts a driver that briefly lost its storage or Ray's controller.
KubeRay could, with a new cluster, but that costs the chips of a whole start. So the driver is a child of this process,
which imports almost nothing: it copies the driver's output (to Ray, to the pod's log, and to trainer/log_keeper.py,
which keeps it in storage), and forks again while run.maxRestarts allows it. If the run failed, its last line is
"Error: …": KubeRay keeps the last 20,000 characters of a failed job's output in the RayJob, and the launcher reads the
reason there.

SIGUSR1 (trainer/prestop.py) means that the head's pod is ending: the driver makes the run write one more checkpoint,
and this process stays until the pod is gone. KubeRay would treat a job that ended as failed, but it submits a job again
that is lost with its head.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from trainer.errors import ConfigError
from trainer.log_keeper import Pipe, Settings
from trainer.metrics import EVENT_PREFIX, event_line
from trainer.pod_log import VARIABLE, PodLog

GAVE_UP = 4
"""The exit code by which a driver reports that no restart helps. This process then ends with 1."""

_ERROR = b"Error: "
_LONGEST_PAUSE = 30.0
_LOG_DRAIN_SECONDS = 1.0
_SECONDS_TO_STAY = 3600.0
_LONGEST_LINE = 1 << 16
_PR_SET_PDEATHSIG = 1


def keep_output(kept: Settings) -> int | None:
    """Fork the process of a host without Ray, and keep its output. Returns None in it at once; in this process, which
    is the first of its container, the exit code, once it is over."""
    supervisor = _Supervisor(kept)
    code = supervisor.one_life()
    if code is None:
        return None
    supervisor.close()
    return 128 - code if code < 0 else code


def supervise(max_restarts: Callable[[], int], kept: Settings | None = None) -> int | None:
    """Fork the driver. Returns None in the driver at once; in this process, the job's exit code, once it is over.

    `max_restarts` is called when a driver has failed; it may raise ConfigError. `kept`: where the output is kept.
    """
    supervisor = _Supervisor(kept)
    pause, restarts = 1.0, 0
    while True:
        code = supervisor.one_life()
        if code is None:
            return None
        sentence = supervisor.sentence(code)
        if supervisor.stop_requested or code in (0, 2, GAVE_UP):
            break
        try:
            left = max_restarts() - restarts
        except ConfigError:
            break
        if left <= 0:
            break
        restarts += 1
        supervisor.print_line(EVENT_PREFIX + event_line("driver_failed", message=sentence, restarts_left=left - 1))
        supervisor.print_line(f"{sentence} The driver restarts in {pause:g} s; {left - 1} restarts are left.")
        if supervisor.stop_requested_within(pause):
            break
        pause = min(2 * pause, _LONGEST_PAUSE)
    if code != 0 and supervisor.pod_stops:
        supervisor.stay()
    if code != 0:
        supervisor.exit_message(sentence)
    supervisor.close()
    if code < 0:
        return 128 - code
    return 1 if code == GAVE_UP else code


class _Supervisor:
    def __init__(self, kept: Settings | None) -> None:
        self.stop_requested = self.pod_stops = False
        self._pod_log, self._kept = PodLog(os.environ.get(VARIABLE, "")), Pipe(kept)
        self._child = 0
        self._line = self._last = self._error = b""
        self._before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
        for number in self._before:
            signal.signal(number, self._signalled)

    def one_life(self) -> int | None:
        """Fork. Returns None in the child, else its exit code, or minus the number of the signal that ended it."""
        self._line = self._last = self._error = b""
        sys.stdout.flush()
        sys.stderr.flush()
        reading, writing = os.pipe()
        myself = os.getpid()
        # A signal in between would find neither a child to forward to nor the child's own handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._before)
        try:
            self._child = os.fork()
            if not self._child:
                self._become_driver(myself, writing)
                return None
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._before)
        os.close(writing)
        status = self._pass_on(reading)
        os.close(reading)
        self._child = 0
        return os.waitstatus_to_exitcode(status)

    def stop_requested_within(self, seconds: float) -> bool:
        """Wait. Returns early if this process receives a stop signal."""
        deadline = time.monotonic() + seconds
        while not self.stop_requested and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.stop_requested

    def stay(self) -> None:
        """Wait for the end of the pod, for a limited time so that a pod that stays is not blocked indefinitely."""
        deadline = time.monotonic() + _SECONDS_TO_STAY
        while self.pod_stops and time.monotonic() < deadline:
            time.sleep(0.2)

    def sentence(self, code: int) -> str:
        """Return the driver's own error sentence, or a description of how it ended."""
        if self._error:
            return self._error.removeprefix(_ERROR).decode(errors="replace")
        if code < 0:
            return f"The driver was ended by {signal.Signals(-code).name}."
        return f"The driver ended with exit code {code}."

    def exit_message(self, sentence: str) -> None:
        """Print the sentence, unless it was the last line printed."""
        line = f"Error: {sentence}"
        if self._last != line.encode():
            self.print_line(line)

    def print_line(self, line: str) -> None:
        self._write((b"\n" if self._line else b"") + line.encode(errors="replace") + b"\n")

    def close(self) -> None:
        self._pod_log.close()
        self._kept.close()

    def _become_driver(self, supervisor: int, output: int) -> None:
        self._pod_log.close()
        self._kept.abandon()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        # Ray, or the kernel when memory is short, stops this pair of processes; neither is of use alone.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)

    def _pass_on(self, pipe: int) -> int:
        """Copy the child's output until it exits. A child of its own may keep the pipe open indefinitely."""
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        status: int | None = None
        deadline = 0.0
        while status is None or time.monotonic() < deadline:
            if poll.poll(100):
                output = os.read(pipe, 1 << 16)
                if not output:
                    break
                self._write(output)
            elif status is not None:
                break
            if status is None:
                ended, waited = os.waitpid(self._child, os.WNOHANG)
                if ended:
                    status, deadline = waited, time.monotonic() + _LOG_DRAIN_SECONDS
        return os.waitpid(self._child, 0)[1] if status is None else status

    def _write(self, output: bytes) -> None:
        *whole, self._line = (self._line + output).split(b"\n")
        self._line = self._line[-_LONGEST_LINE:]  # a progress bar's line never ends
        for line in whole:
            if line.strip():
                self._last = line
            if line.startswith(_ERROR):
                self._error = line
        self._pod_log.write(output)
        self._kept.write(output)
        while output:
            try:
                output = output[os.write(1, output) :]
            except OSError:  # the pipe has no reader, or the disk is full; the driver must continue
                return

    def _signalled(self, number: int, _: FrameType | None) -> None:
        self.stop_requested = True
        self.pod_stops = number == signal.SIGUSR1
        # Ray signals every process of the job, a terminal the foreground processes; `kill` and the hook only this.
        if number != signal.SIGINT and self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, number)
