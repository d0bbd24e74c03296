"""The log of this process's container, as `kubectl logs` shows it.

Ray starts a RayJob's driver on the head and writes its output to a file there. A user who may read pod logs but
has no token for Ray's dashboard cannot see it. So the driver's lines are copied to the output of the container's first
process: SLIPWAY_POD_LOG, which the chart sets to /proc/1/fd/1 on the head of a RayJob. That is a pipe of the container
runtime, which belongs to the container's user, root or not: runc changes its owner (fixStdioPermissions in
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
    """Writes lines to the log. Reports once, on stderr, if it cannot, and never fails."""

    def __init__(self, path: str) -> None:
        """`path`: the file or pipe to write to; "" for none."""
        self._descriptor = -1
        self._begun = b""
        self._left_out = 0
        if path:
            try:
                # Non-blocking, because training must not wait for a log without a reader.
                flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._descriptor = os.open(path, flags)
            except OSError as error:
                self._give_up(path, error)

    def write(self, output: bytes) -> None:
        """Write the complete lines so far, each in one write, so that the container's own lines are not split."""
        if self._descriptor < 0:
            return
        *whole, self._begun = (self._begun + output).split(b"\n")
        if len(self._begun) > _LONGEST_LINE:  # a progress bar, whose line never ends
            whole, self._begun = [*whole, self._begun], b""
        for line in whole:
            self._line(line + b"\n")

    def close(self) -> None:
        """Also write a last line that has no line ending."""
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
            line = f"({self._left_out} lines are missing here: the log accepted none.)\n".encode() + line
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
            f"Cannot write to the pod's log ({path}): {error.strerror}. kubectl logs does not show the output.",
            file=sys.stderr,
            flush=True,
        )
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
