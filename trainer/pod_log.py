"""The log of the container that this process is in, as `kubectl logs` shows it.

A RayJob's driver is started by Ray on the head, its output goes to a file there, and whoever may read pods' logs but
not the token of Ray's dashboard never sees it. So the driver's lines are copied to where the container's first process
prints: SLIPWAY_POD_LOG, which the chart sets to /proc/1/fd/1 on the head of a RayJob. That is a pipe of the container
runtime's, which belongs to the container's user, root or not: runc hands it over (fixStdioPermissions in
libcontainer/init_linux.go), and the driver runs as that user.
"""

from __future__ import annotations

import os
import select
import sys

VARIABLE = "SLIPWAY_POD_LOG"
_SECONDS_TO_TAKE_A_LINE = 10.0
_LONGEST_LINE = 1 << 16


class PodLog:
    """Takes lines; says once, on stderr, where it cannot, and never fails."""

    def __init__(self, path: str) -> None:
        """`path`: the file or pipe to write to; "" for none."""
        self._descriptor = -1
        self._begun = b""
        self._left_out = 0
        if path:
            try:
                # Not blocking, for training must not wait for a log that nobody takes.
                flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._descriptor = os.open(path, flags)
            except OSError as error:
                self._give_up(path, error)

    def write(self, said: bytes) -> None:
        """Pass on the lines that are whole by now, each in one piece, so that the container's own are not cut."""
        if self._descriptor < 0:
            return
        *whole, self._begun = (self._begun + said).split(b"\n")
        if len(self._begun) > _LONGEST_LINE:  # a progress bar's, which never ends
            whole, self._begun = [*whole, self._begun], b""
        for line in whole:
            self._line(line + b"\n")

    def close(self) -> None:
        """Pass on a last line without an end, too."""
        if self._begun:
            self.write(b"\n")
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _line(self, line: bytes) -> None:
        if self._left_out and not self._ready(0):
            self._left_out += 1
            return
        if self._left_out:
            line = f"({self._left_out} lines are left out here: the log took none.)\n".encode() + line
            self._left_out = 0
        while line and self._descriptor >= 0:
            try:
                line = line[os.write(self._descriptor, line) :]
            except BlockingIOError:
                if not self._ready(_SECONDS_TO_TAKE_A_LINE):
                    self._left_out = 1
                    return
            except OSError as error:
                self._give_up("SLIPWAY_POD_LOG", error)

    def _ready(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def _give_up(self, path: str, error: OSError) -> None:
        print(  # noqa: T201 - the job's log
            f"The pod's log ({path}) cannot be written ({error.strerror}); kubectl logs will not show what is printed.",
            file=sys.stderr,
            flush=True,
        )
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
